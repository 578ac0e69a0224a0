"""Modelled engines against sums worked by hand."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from miles_core import BuildContext, Group, PauseMode, Sequence, Trajectory
from miles_core.rollout.fleet import Fleet
from miles_core.rollout.staleness import MeanVersion, MeanVersionOptions, PerToken, PerTokenOptions
from miles_core.simulate.engines import ModelledFleet
from miles_core.simulate.light import light_sequence
from miles_core.simulate.routing import Routing
from miles_core.simulate.service import Service
from miles_core.simulate.virtual_time import run_in_virtual_time
from miles_core.testing import make_task

SLOW = {"seconds_per_token": 0.1, "seconds_per_neighbour": 0.1, "prefill_tokens_per_second": 100.0}


def serve(requests, *, publications=(), **service):
    """Requests (when, tokens, prompt) at one engine, publications (when, pause): (end, pieces, aborted) of each."""

    async def main():
        fleet = ModelledFleet(Service(**{**SLOW, **service}), 1)
        loop = asyncio.get_running_loop()

        async def ask(number, when, tokens, prompt):
            await asyncio.sleep(when)
            pieces, aborted = await fleet.serve(number, tokens, prompt)
            return round(loop.time(), 6), pieces, aborted

        async def update(version, when, pause):
            await asyncio.sleep(when)
            await fleet.publish(version, pause)

        asked = [ask(number, *request) for number, request in enumerate(requests)]
        updated = [update(number + 2, *each) for number, each in enumerate(publications)]
        return (await asyncio.gather(*asked, *updated))[: len(requests)], fleet.worked()

    return run_in_virtual_time(main())


def test_a_request_alone_takes_its_prompt_and_its_tokens():
    answers, (busy, slots) = serve([(0.0, 10, 50)])
    assert answers == [(1.5, [(10, 1)], False)]
    assert (busy, slots) == pytest.approx((1.5, 1.5))


def test_requests_side_by_side_slow_each_other_down():
    # 5 tokens alone in 0.5 s; then 0.2 s a token for both: the first ends at 1.5, the second has 5 left at 0.1 s
    answers, (busy, slots) = serve([(0.0, 10, 0), (0.5, 10, 0)])
    assert [end for end, *_ in answers] == [1.5, 2.0]
    assert (busy, slots) == pytest.approx((2.0, 3.0))


def test_what_does_not_fit_waits_for_a_slot():
    answers, _ = serve([(0.0, 10, 0), (0.0, 10, 0), (0.0, 5, 0)], slots=1)
    assert [end for end, *_ in answers] == [1.0, 2.0, 2.5]


def test_a_prompt_is_computed_before_anything_else_goes_on():
    answers, _ = serve([(0.0, 10, 0), (0.5, 5, 100)], seconds_per_neighbour=0.0)
    assert [end for end, *_ in answers] == [2.0, 2.0]


@pytest.mark.parametrize(
    ("pause", "end"),
    # 5 tokens, 1 s of publication, and 5 tokens again; retracted, the 15 tokens until then are computed once more
    [(PauseMode.RETRACT, 0.1 + 0.5 + 1 + 0.15 + 0.5), (PauseMode.IN_PLACE, 0.1 + 0.5 + 1 + 0.5)],
)
def test_tokens_after_a_publication_are_of_the_new_version(pause, end):
    answers, _ = serve([(0.0, 10, 10)], publications=[(0.6, pause)], publish_seconds=1.0)
    assert answers == [(pytest.approx(end), [(5, 1), (5, 2)], False)]


def test_abort_ends_what_is_in_flight_and_what_waits():
    answers, _ = serve(
        [(0.0, 10, 0), (0.1, 10, 0), (0.5, 3, 0)], slots=1, publications=[(0.35, PauseMode.ABORT)], publish_seconds=1.0
    )
    assert answers[:2] == [(0.35, [(3, 1)], True), (0.35, [], True)]
    assert answers[2] == (pytest.approx(1.65), [(3, 2)], False)  # it came while engines stood still


@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 40), st.integers(0, 60)), min_size=1, max_size=12))
@settings(max_examples=40, deadline=None)
def test_every_token_is_sampled_by_one_version_in_order(requests):
    updates = [(0.7 * n, PauseMode.RETRACT) for n in range(1, 100)]
    answers, _ = serve(requests, publications=updates, publish_seconds=0.01, slots=4)
    for (_, tokens, _), (_, pieces, aborted) in zip(requests, answers, strict=True):
        assert sum(count for count, _ in pieces) == tokens and not aborted
        assert [version for _, version in pieces] == sorted({version for _, version in pieces})


@given(st.integers(1, 5), st.lists(st.integers(0, 30), max_size=60), st.integers(0, 9))
@settings(max_examples=50, deadline=None)
def test_groups_go_where_the_real_fleet_sends_them(engines, groups, seed):
    noise, routing, going = random.Random(seed), Routing(engines), []
    fleet = Fleet([SimpleNamespace(name=str(number)) for number in range(engines)])
    for group in groups:
        engine, _ = routing.start(group)
        home = fleet._route(SimpleNamespace(affinity=str(group), tokens=()))
        assert home.engine.name == str(engine)
        fleet._active[home.engine.name] += 1
        going.append(engine)
        while going and noise.random() < 0.4:
            ended = going.pop(noise.randrange(len(going)))
            routing.end(ended)
            fleet._active[str(ended)] -= 1


def test_light_sequences_are_sequences():
    light = light_sequence(3, [(4, 1), (2, 5)])
    real = Sequence(light.tokens, light.sampled, light.logprobs, light.versions, light.spans)  # which checks them all
    assert (len(light), light.sampled_count, light.prompt_length) == (9, 6, 3)
    assert (len(real), real.sampled_count, real.prompt_length) == (9, 6, 3)
    assert light.versions.tolist() == [0, 0, 0, 1, 1, 1, 1, 5, 5] and np.array_equal(light.sampled, real.sampled)
    with pytest.raises(AttributeError):
        _ = light.nonsense


def test_policies_judge_light_sequences():
    context = BuildContext(1, "test")
    group = Group(make_task(), 0, 0, (Trajectory("a", "t", 0, (light_sequence(3, [(4, 1), (2, 5)]),)),))
    kept = PerToken(PerTokenOptions(limit=1), context).judge(group, 5).instead
    assert kept.trajectories[0].sampled_count == 2 and len(kept.trajectories[0].sequences[0]) == 9
    assert MeanVersion(MeanVersionOptions(limit=2), context).judge(group, 5).reason == (
        "tokens are 2.67 versions old on average"
    )
