"""The schedules on a scripted engine in virtual time: real rollout, buffer and driver's order of things."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from miles_core import (
    BuildContext,
    Draw,
    GenerateContext,
    Group,
    PauseMode,
    Status,
    Trajectory,
    UpdateManifest,
    Verdict,
)
from miles_core.contracts.options import ScheduleOptions
from miles_core.contracts.transport import Delivery, Form
from miles_core.rollout.async_schedule import AsyncOptions, AsyncSchedule
from miles_core.rollout.fifo_buffer import FifoOptions
from miles_core.rollout.groups import GroupsRollout
from miles_core.rollout.one_step_off import OneStepOffOptions, OneStepOffSchedule
from miles_core.rollout.single_turn import SingleTurn
from miles_core.rollout.staleness import OldestToken, OldestTokenOptions
from miles_core.rollout.sync_schedule import SyncSchedule
from miles_core.simulate.virtual_time import VirtualClock, run_in_virtual_time
from miles_core.testing import CharRenderer, ScriptedEngine, make_task
from miles_core.testing.practice import Practice, practise
from miles_core.weights.publication import publish

CONTEXT = BuildContext(1, "test")
BATCH = {"groups_per_step": 3, "group_size": 2}


class Tasks:
    """Numbered tasks: endless, or as many as it is told."""

    def __init__(self, size: int | None = None) -> None:
        self.drawn, self._size = 0, size

    def draw(self) -> Draw | None:
        if self.drawn == self._size:
            return None
        self.drawn += 1
        return Draw(make_task(id=f"t{self.drawn}"), 0)


def asynchronous(**options) -> AsyncSchedule:
    return AsyncSchedule(AsyncOptions(**BATCH, **options), CONTEXT)


def one_step_off() -> OneStepOffSchedule:
    return OneStepOffSchedule(OneStepOffOptions(**BATCH), CONTEXT)


def sync() -> SyncSchedule:
    return SyncSchedule(ScheduleOptions(**BATCH), CONTEXT)


class NotLonelyX:
    """Drops groups by what was sampled: a pure function of the noise."""

    def judge(self, group: Group) -> Verdict:
        return Verdict(not group.trajectories[0].text.startswith(("a", "b", "c")), "starts early")


def ring(schedule, *, latency=lambda attempt: 0.0, steps=6, size=None, train=0.5, lose=lambda attempt: False, **more):
    """Run it: an attempt takes its latency, then 0.01 s a token on a scripted engine; training takes `train` s."""
    in_flight: list[int] = [0, 0]

    async def main() -> Practice:
        clock = VirtualClock()
        engine = ScriptedEngine(clock=clock, seconds_per_token=0.01)
        context = GenerateContext(engine, CharRenderer(), clock)

        async def generate(attempt) -> Trajectory:
            in_flight[0] += 1
            in_flight[1] = max(in_flight)
            try:
                await clock.sleep(latency(attempt))
                made = await SingleTurn().generate(attempt, context)
            finally:
                in_flight[0] -= 1
            return replace(made, status=Status.ABORTED) if lose(attempt) else made

        async def bring(version: int, pause: PauseMode) -> None:
            async def transfer() -> None:
                await engine.load(Delivery(Form.DISK, "test", {}))

            await publish(UpdateManifest(version, Form.DISK), [engine], transfer, pause)

        async def learn(groups) -> None:
            await clock.sleep(train)

        return await practise(
            schedule, Tasks(size), generate, steps=steps, train=learn, publish=bring, clock=clock, **more
        )

    result = run_in_virtual_time(main())
    return result, in_flight[1]


def texts(result: Practice) -> list[list[tuple]]:
    return [[(g.number, g.task.id, tuple(t.text for t in g.trajectories)) for g in batch] for batch in result.batches]


def bits(result: Practice) -> list:
    """Everything that was sampled, to the last bit."""
    return [
        (g.number, t.id, s.tokens.tobytes(), s.logprobs.tobytes(), s.versions.tobytes(), s.spans)
        for batch in result.batches
        for g in batch
        for t in g.trajectories
        for s in t.sequences
    ]


LATENCIES = st.lists(st.floats(0, 5), min_size=1, max_size=20)


def from_list(latencies):
    return lambda attempt: latencies[(7 * attempt.group + attempt.index) % len(latencies)]


@settings(max_examples=8, deadline=None)
@given(latencies=LATENCIES, others=LATENCIES, refill=st.sampled_from(["sample", "group"]))
def test_by_submission_batches_do_not_depend_on_latencies(latencies, others, refill):
    def go(given):
        made = ring(asynchronous(order="submission", refill=refill), latency=from_list(given), filters=(NotLonelyX(),))
        return made[0]

    first, again, other = go(latencies), go(latencies), go(others)
    assert bits(first) == bits(again)
    assert texts(first) == texts(other)
    assert [g.number for batch in first.batches for g in batch] == sorted(
        g.number for batch in first.batches for g in batch
    )


@settings(max_examples=40, deadline=None)
@given(
    latencies=LATENCIES,
    schedule=st.sampled_from(["sync", "one-step-off", "async"]),
    order=st.sampled_from(["arrival", "submission"]),
    refill=st.sampled_from(["sample", "group"]),
    pause=st.sampled_from(list(PauseMode)),
    capacity=st.sampled_from([1.0, 1.5, 3.0]),
    slots=st.integers(2, 20),
    size=st.integers(0, 25),
    lossy=st.integers(0, 5),
    limit=st.integers(0, 3),
    recycle=st.sampled_from([(), ("stale",), ("aborted", "stale")]),
)
def test_nothing_is_lost_nothing_is_trained_twice_and_finite_data_ends(
    latencies, schedule, order, refill, pause, capacity, slots, size, lossy, limit, recycle
):
    schedules = {"sync": sync, "one-step-off": one_step_off}
    made = (
        asynchronous(order=order, refill=refill, pause=pause, in_flight=slots)
        if schedule == "async"
        else schedules[schedule]()
    )
    result, at_once = ring(
        made,
        latency=from_list(latencies),
        steps=40,
        size=size,
        lose=lambda attempt: attempt.group % 6 < lossy - 3,
        filters=(NotLonelyX(),),
        staleness=OldestToken(OldestTokenOptions(limit=limit), CONTEXT),
        buffer=FifoOptions(capacity=capacity, recycle=recycle),
    )
    trained = [g.number for batch in result.batches for g in batch]
    discarded = [discard.group.number for discard in result.discards]
    assert sorted(trained + discarded) == list(range(result.submitted))
    assert result.submitted - sum(d.recycle for d in result.discards) == size
    assert at_once <= (slots if schedule == "async" else 6)
    for version, batch in enumerate(result.batches, start=1):
        assert all(version - group.oldest_version <= limit for group in batch)


def test_by_sample_a_straggler_keeps_nobody_waiting():
    def straggling(attempt):
        return 5.0 if attempt.index == 0 and attempt.group % 3 == 0 else 0.1

    options = {"steps": 40, "train": 0.01, "latency": straggling}
    by_sample, _ = ring(asynchronous(refill="sample", in_flight=12), **options)
    by_group, _ = ring(asynchronous(refill="group", in_flight=12), **options)
    together, _ = ring(sync(), **options)
    assert by_sample.engine_idle < 0.2 < by_group.engine_idle < together.engine_idle
    assert by_sample.seconds < by_group.seconds < together.seconds


def test_a_slow_trainer_stops_the_rollout_at_a_full_buffer():
    result, _ = ring(asynchronous(), train=100.0, steps=4, size=None)
    waiting = result.submitted - 4 * 3
    assert waiting == 0  # never more than can be trained
    result, _ = ring(asynchronous(), train=100.0, steps=4, staleness=OldestToken(OldestTokenOptions(limit=3), CONTEXT))
    assert not result.discards  # 6 groups wait, 3 are in flight: none grows older than 3 batches


def test_slow_rewards_hold_the_rollout_up():
    scoring: list[int] = [0, 0]

    async def slow(group: Group) -> Group:
        scoring[0] += 1
        scoring[1] = max(scoring)
        await VirtualClock().sleep(50.0)
        scoring[0] -= 1
        return group

    result, _ = ring(asynchronous(in_flight=8), latency=lambda attempt: 0.1, steps=6, score=slow)
    assert len(result.batches) == 6
    assert scoring[1] <= 8  # 4 groups that are scored, and 4 in flight that end meanwhile


def test_one_step_off_publishes_when_nothing_is_in_flight():
    result, _ = ring(one_step_off(), latency=lambda attempt: random.Random(attempt.id).random())
    for version, batch in enumerate(result.batches, start=1):
        found = {v for g in batch for t in g.trajectories for s in t.sequences for v in s.versions[s.sampled]}
        assert found == {max(1, version - 1)}
    assert (
        result.trainer_idle < ring(sync(), latency=lambda attempt: random.Random(attempt.id).random())[0].trainer_idle
    )


def test_the_work_for_a_trajectory_stays_the_same(monkeypatch):
    turns: Counter[int] = Counter()
    start = GroupsRollout._start

    def counted(self):
        turns[steps] += 1
        return start(self)

    monkeypatch.setattr(GroupsRollout, "_start", counted)
    made = {}
    for steps in (10, 100):
        latency = lambda attempt: random.Random(attempt.id).lognormvariate(0, 1.5)  # noqa: E731
        made[steps] = 2 * ring(asynchronous(), latency=latency, steps=steps, train=0.01)[0].submitted
    assert turns[100] / made[100] <= 1.1 * turns[10] / made[10] <= 3
