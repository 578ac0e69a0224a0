"""The adaptive schedule: its controller as a function, its state, and beside the best fixed setting in virtual time."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_core import BuildContext, RequestError
from miles_core.loop.adapting import Adapting
from miles_core.recipe.plan import load_plan
from miles_core.rollout.adaptive_schedule import AdaptiveOptions, AdaptiveSchedule
from miles_core.rollout.controller import HOLD, LOSS, Bounds, Dials, Measured, Memory, decide
from miles_core.rollout.fifo_buffer import FifoBuffer, FifoOptions
from miles_core.simulate.lengths import read_lengths
from miles_core.simulate.service import Service
from miles_core.simulate.simulate import Question, phase_of, simulate
from miles_core.testing import make_group

CONTEXT = BuildContext(1, "test")
RECIPE = Path(__file__).parents[2] / "recipes" / "toy-async.yaml"
BATCH = {"groups_per_step": 8, "group_size": 8}
BOUNDS = Bounds(8, 8, (16, 320), (8, 24), (1, 3), max_staleness=4)
CALM = Measured(trainer_idle=0.0, publishing=0.0, engine_idle=0.0, wasted=0.0, staleness=1.0, queue=0.0)
SHARES = st.floats(0, 1)
MEASURED = st.builds(Measured, SHARES, SHARES, SHARES, SHARES, st.floats(0, 9), st.floats(0, 50))


@given(steps=st.lists(MEASURED, max_size=30), start=st.integers(2, 40), limit=st.sampled_from([None, 1, 4]))
def test_one_change_at_a_time_inside_the_bounds_and_the_same_again(steps, start, limit):
    bounds = replace(BOUNDS, max_staleness=limit)
    dials, memory = Dials(8 * min(start, 16 if limit == 1 else 40), 16, 1), Memory()
    for measured in steps:
        decision = decide(dials, memory, measured, bounds)
        assert decision == decide(dials, memory, measured, bounds)
        after = decision.dials
        moved = [name for name in ("in_flight", "room", "update_every") if getattr(after, name) != getattr(dials, name)]
        assert bool(moved) == bool(decision.said) and len(decision.said) <= 1
        assert len(moved) <= 1 or set(moved) == {"in_flight", "update_every"}  # fewer fit under max_staleness
        assert 16 <= after.in_flight <= 320 and 8 <= after.room <= 24 and 1 <= after.update_every <= 3
        assert limit is None or after.in_flight <= (limit * after.update_every + 1) * 64
        for name in moved[:1]:
            assert f"{getattr(dials, name)} → {getattr(after, name)}: " in decision.said[0] or len(moved) == 2
        dials, memory = after, decision.memory


@pytest.mark.parametrize(
    ("measured", "moves", "because"),
    [
        ({"wasted": 0.2}, {"in_flight": 48}, "20 % of the groups that were made were too old"),
        ({"trainer_idle": 0.41}, {"in_flight": 96}, "the trainer waited 41 % of the time and the slots were full"),
        ({"trainer_idle": 0.3, "engine_idle": 0.5}, {"update_every": 2}, "although slots were empty (engines idle 50"),
        ({"publishing": 0.2}, {"update_every": 2}, "publications took 20 % of the time"),
        ({"staleness": 2.0, "queue": 12.0}, {"room": 12}, "what it was given was 2.0 versions old"),
        ({"staleness": 2.0}, {"in_flight": 48}, "the trainer waited only 0 % of the time"),
        ({"engine_idle": 0.9}, {}, ""),
    ],
)
def test_what_is_moved_and_why(measured, moves, because):
    before = Dials(64, 16, 1)
    decision = decide(before, Memory(), replace(CALM, **measured), BOUNDS)
    assert decision.dials == replace(before, **moves)
    assert because in "".join(decision.said)


def test_what_made_it_worse_is_taken_back_and_left_alone_for_a_while():
    waits = replace(CALM, trainer_idle=0.4)
    up = decide(Dials(64, 16, 1), Memory(), waits, BOUNDS)
    worse = replace(waits, trainer_idle=1 - 0.6 * (1 - 2 * LOSS))
    back = decide(up.dials, up.memory, worse, BOUNDS)
    assert back.dials == Dials(64, 16, 1) and "before 60 %" in back.said[0]
    dials, memory, tries = back.dials, back.memory, 0
    while (decision := decide(dials, memory, waits, BOUNDS)).dials == dials:
        memory, tries = decision.memory, tries + 1
    assert tries == HOLD - 1


def schedule(**options) -> AdaptiveSchedule:
    return AdaptiveSchedule(AdaptiveOptions(**BATCH, **options), CONTEXT)


STEP = {"time/rollout": 4.0, "time/train": 6.0, "time/publish": 0.1, "time/step": 10.1, "rollout/groups": 8.0}


def test_its_state_is_json_and_a_resumed_one_decides_the_same():
    one = schedule(period=2, update_every=(1, 3), max_staleness=2, room=(8, 30))
    one.begin(16)
    said = []
    for step in range(1, 40):
        idle = {"time/engine_idle": 0.6 if step % 7 else 0.0, "buffer/stale": float(step % 5 == 0)}
        other = schedule(period=2, update_every=(1, 3), max_staleness=2, room=(8, 30))
        other.begin(16)
        if step > 1:
            other.restore(json.loads(json.dumps(one.state())))
            assert (other.pace, other.room, other.settings()) == (one.pace, one.room, one.settings())
            assert [other.publishes(s) for s in range(step, step + 9)] == [
                one.publishes(s) for s in range(step, step + 9)
            ]
        told = other.adapt(step, {**STEP, **idle}) if step > 1 else None
        said += (mine := one.adapt(step, {**STEP, **idle}))
        assert told is None or told == mine
    assert len(said) >= 2


def test_publications_go_on_evenly_from_the_last_one():
    one = schedule(period=1, update_every=(1, 3))
    published = []
    for step in range(1, 20):
        if one.publishes(step):
            published.append(step)
        one.adapt(step, {**STEP, "time/engine_idle": 0.6} if step in (4, 9) else {**STEP, "time/rollout": 0.1})
    assert published == [1, 2, 3, 4, 6, 8, 11, 14, 17]


def test_why_nothing_was_changed_is_known_until_something_is():
    one = schedule(period=2, in_flight=(16, 64))
    assert one.unchanged() == "fewer steps than its period of 2 were measured"
    busy = {"time/rollout": 0.0, "time/train": 9.0, "time/step": 9.0}
    for step in (1, 2):
        one.adapt(step, busy)
    assert one.unchanged().startswith("the trainer waited 0 % of the time, publications took 0 %, 0 % of the groups")
    for step in (3, 4):
        one.adapt(step, STEP)  # it waits, with 64 in flight, and no more are allowed
    resumed = schedule(period=2, in_flight=(16, 64))
    resumed.restore(json.loads(json.dumps(one.state())))
    assert "40 % of the time and the slots were full" in resumed.unchanged()
    assert resumed.unchanged().endswith("do not let it have more in_flight than 64")
    for step in (5, 6):
        resumed.adapt(step, {**STEP, "buffer/stale": 90.0})
    assert resumed.unchanged() == "" and resumed.settings()["in_flight"] == 48
    assert Adapting(one, GroupsLike(), GroupsLike(), 16).unchanged() == one.unchanged()


class GroupsLike:
    def repace(self, pace): ...
    def resize(self, groups): ...


async def test_the_buffer_grows_and_shrinks_without_losing_a_group():
    buffer = FifoBuffer(FifoOptions(capacity=1.0), CONTEXT)
    buffer.connect(2, (), None)
    puts = [asyncio.create_task(buffer.put(make_group(("a",), number=n))) for n in range(8)]
    await asyncio.sleep(0)
    assert len(buffer.waiting()) == 2
    buffer.resize(5)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert len(buffer.waiting()) == 5
    buffer.resize(1)
    puts[6].cancel()  # it waits outside
    taken = []
    for _ in range(7):
        taken.append((await asyncio.wait_for(buffer.get(1), 1)).number)
        await asyncio.sleep(0)
        assert len(buffer.waiting()) <= max(1, 5 - len(taken))
    assert taken == [0, 1, 2, 3, 4, 5, 7]


def test_whoever_cannot_follow_is_refused():
    class Fixed:
        def grant(self, groups): ...

    with pytest.raises(RequestError, match=r"(?s)cannot change its pace.*cannot change its size"):
        Adapting(schedule(room=(8, 16)), Fixed(), Fixed(), 16)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"in_flight": [64, 32]}, r"in_flight is \[64, 32\]: at least 64 is more than at most 32"),
        ({"in_flight": [4, 64]}, "less than one group of 8"),
        ({"start": 1000}, r"start is 1000, outside of the bounds of in_flight, 16 to 256"),
        ({"in_flight": [16, 400], "max_staleness": 2}, r"400 trajectories.*6.25 batches of 64.*choose in_flight 192"),
        ({"room": [4, 20]}, "room may fall to 4 groups, less than a batch of 8"),
        ({"room": [8, 12]}, "the buffer's capacity is 16, outside of the bounds of room, 8 to 12"),
        ({"max_staleness": 0}, "choose 1 or more"),
    ],
)
def test_bounds_that_contradict_are_refused_with_the_arithmetic(options, says):
    with pytest.raises(RequestError, match=f"(?s){says}"):
        load_plan(RECIPE, [f"schedule={json.dumps({'use': 'adaptive', **BATCH, **options})}"])


def test_bounds_and_start_are_in_the_plan():
    options = {"use": "adaptive", **BATCH, "max_staleness": 2, "update_every": [1, 2], "room": [8, 24]}
    plan, _ = load_plan(RECIPE, [f"schedule={json.dumps(options)}"])
    card = AdaptiveOptions(**plan.phases[0].schedule.options).card()
    assert card["trajectories in flight"] == "16 to 256, at first 64"
    assert card["steps between publications"] == "1 to 2, at first 1"
    assert card["groups that may wait"] == "8 to 24, at first the buffer's capacity"


def forecast(lengths, **options):
    plan, _ = load_plan(RECIPE, [f"schedule={json.dumps({**BATCH, 'max_staleness': 4, **options})}", "filters=[]"])
    phase = phase_of(plan, None)
    phase = replace(phase, sampling=replace(phase.sampling, max_new_tokens=10**5))
    service = Service(train_seconds=2.0, publish_seconds=0.2)
    return simulate(plan, phase, Question(4, 64 * 120, read_lengths(lengths, Path()), service, 1))


@pytest.mark.parametrize("lengths", ["lognormal:mu=4,sigma=1.5", "lognormal:mu=5,sigma=0.4"])
def test_from_a_bad_start_it_comes_within_a_few_points_of_the_best_fixed_setting(lengths):
    best = forecast(lengths, use="async", in_flight=160)["steady"]["trainer_idle"]  # of 16, 32, 64, ... 320
    found = forecast(lengths, use="adaptive", in_flight=[16, 320], start=16, period=2)
    first = found["adapted"][0]["what"]
    assert "16 → 24: " in first and int(first.partition("trainer waited ")[2].split()[0]) >= 80  # a bad start
    assert best - 0.03 <= found["steady"]["trainer_idle"] <= best + 0.06
    assert all("→" in each["what"] for each in found["adapted"]) and len(found["adapted"]) >= 3
    assert found["steps"] == 120
