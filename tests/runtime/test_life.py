"""An engine's life: whatever happens in whatever order, it serves only the version that it was told to load."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_core.runtime.life import IllegalTransition, Life, State, delay

LIMIT = 2
LEGAL = {
    "ready": {State.STARTING},
    "publish": {State.LOADING, State.SERVING},
    "loaded": {State.LOADING},
    "steady": {State.SERVING},
    "drain": {State.STARTING, State.LOADING, State.SERVING},
    "die": {State.STARTING, State.LOADING, State.SERVING, State.DRAINING},
    "restart": {State.DEAD},
}
EVENTS = st.lists(st.tuples(st.sampled_from(sorted(LEGAL)), st.integers(1, 4)), max_size=40)


def apply(life: Life, event: str, number: int) -> Life:
    arguments = {
        "ready": (number,),
        "publish": (number,),
        "loaded": (number,),
        "steady": (),
        "drain": ("not well",),
        "die": ("killed",),
        "restart": (LIMIT,),
    }
    return getattr(life, event)(*arguments[event])


@given(EVENTS)
def test_no_sequence_of_events_leads_astray(events):
    life, told, deaths = Life(), None, 0
    for event, number in events:
        before = life
        try:
            life = apply(life, event, number)
        except IllegalTransition:
            assert life == before
            wrong_state = before.state not in LEGAL[event]
            wrong_version = event in ("loaded", "publish") and number != before.version
            spent = event == "restart" and before.restarts >= LIMIT
            assert wrong_state or wrong_version or spent
            continue
        assert before.state in LEGAL[event]
        told = number if event in ("ready", "publish") else told
        deaths += event == "die"
        if life.state is State.SERVING:
            assert life.version == told
        if event == "die":
            assert life.state is State.DEAD and life.version is None
            assert life.why == ("not well" if before.state is State.DRAINING else "killed")
        assert life.starts <= deaths + 1 and life.restarts <= LIMIT
        assert str(life)


def test_an_engine_that_reports_another_version_does_not_serve():
    loading = Life().ready(3)
    for reported in (None, 2, 4):
        with pytest.raises(IllegalTransition, match="loads version 3 reports"):
            loading.loaded(reported)
    assert loading.publish(4).loaded(4).state is State.SERVING


def test_an_older_version_is_never_published():
    with pytest.raises(IllegalTransition, match="version 2 published"):
        Life().ready(3).publish(2)


def test_long_service_wipes_out_deaths():
    life = Life().die("a").restart(1).ready(1).loaded(1)
    assert life.restarts == 1 and not life.may_restart(1)
    assert life.steady().die("b").restart(1).starts == 3
    with pytest.raises(IllegalTransition, match="limit is 1"):
        life.die("b").restart(1)


@given(st.integers(0, 10_000))
def test_restarts_wait_longer_each_time_but_not_for_ever(restarts):
    assert 1.0 <= delay(restarts, 1.0) <= delay(restarts + 1, 1.0) <= 60.0
