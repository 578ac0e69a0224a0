"""Policies that throw less away: single trajectories made again, and doomed work cancelled in flight."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from statistics import mean

from hypothesis import given, settings
from hypothesis import strategies as st

from miles_core import BuildContext, Disposition, Group
from miles_core.contracts.rollout import Draw
from miles_core.rollout.fifo_buffer import FifoOptions
from miles_core.rollout.groups import GroupsOptions, GroupsRollout
from miles_core.rollout.kept import from_data, to_data
from miles_core.rollout.recycled import RecyclingData
from miles_core.rollout.staleness import OldestToken, OldestTokenOptions, Resample, ResampleOptions
from miles_core.rollout.tickets import Tickets
from miles_core.testing import make_group, make_sequence, make_task, make_trajectory
from miles_core.types.trajectory import CANCELLED, REMADE
from tests.rollout.test_schedules import LATENCIES, Tasks, asynchronous, from_list, ring

CONTEXT = BuildContext(1, "test")
TASK = make_task()


def resample(limit=1, **options) -> Resample:
    return Resample(ResampleOptions(limit=limit, **options), CONTEXT)


def mean_version(trajectory) -> float:
    return float(mean(v for s in trajectory.sequences for v in s.versions[s.sampled]))


def aged(*versions, remade=0) -> Group:
    """A group of one trajectory for each version."""
    rows = [make_sequence(answer=["ab"], versions=[version]) for version in versions]
    made = (
        make_trajectory(task=TASK, index=i, id=f"g0.{i}", sequences=(row,), metadata={REMADE: remade} if remade else {})
        for i, row in enumerate(rows)
    )
    return Group(TASK, 0, 0, tuple(made))


def test_only_the_old_ones_are_asked_for_again_and_not_for_ever():
    policy = resample(times=2)
    long = make_sequence(answer=["a", "bcd"], versions=[1, 3])
    mixed = aged(1, 1).replacing((aged(1).trajectories[0], make_trajectory(task=TASK, index=1, sequences=(long,))))
    assert policy.judge(mixed, 3).again == (0,)  # what was begun as early, and went on under new weights, is younger
    assert resample(by="oldest").judge(mixed, 3).again == () and not resample(by="oldest").judge(mixed, 3).keep
    assert policy.judge(aged(3, 2, 3), 3).keep
    verdict = policy.judge(aged(3, 1, 2, 1), 3)
    assert (verdict.keep, verdict.again) == (False, (1, 3))
    assert "2 of 4" in verdict.reason
    for whole in (policy.judge(aged(1, 1), 3), policy.judge(aged(1, 3, remade=2), 3)):
        assert (whole.keep, whole.again) == (False, ()) and whole.reason


def run_remaking(latencies, **options):
    noises: list = []
    numbers: dict[str, tuple] = {}

    def latency(attempt):
        noises.append(attempt.noise())
        numbers[attempt.id] = (attempt.group, attempt.index, attempt.remade)
        return from_list(latencies)(attempt)

    made = asynchronous(in_flight=options.pop("slots", 12), order=options.pop("order", "arrival"))
    result, _ = ring(made, latency=latency, steps=options.pop("steps", 12), train=0.4, **options)
    return result, noises, numbers


@settings(max_examples=30, deadline=None)
@given(
    latencies=LATENCIES,
    order=st.sampled_from(["arrival", "submission"]),
    limit=st.integers(0, 2),
    by=st.sampled_from(["mean", "oldest"]),
    times=st.integers(1, 3),
    size=st.integers(0, 30),
    recycle=st.sampled_from([(), ("stale",)]),
)
def test_every_trajectory_has_one_fate_and_noise_of_its_own(latencies, order, limit, by, times, size, recycle):
    result, noises, numbers = run_remaking(
        latencies, order=order, steps=60, size=size, staleness=resample(limit, times=times, by=by),
        buffer=FifoOptions(recycle=recycle),
    )  # fmt: skip
    fates = Counter(t.id for batch in result.batches for g in batch for t in g.trajectories)
    fates += Counter(t.id for d in result.discards for t in d.group.trajectories)
    assert fates == Counter(list(numbers))
    mended = [d for d in result.discards if d.kept is not None]
    whole = [d for d in result.discards if d.kept is None]
    assert len(mended) + len(whole) + sum(map(len, result.batches)) == result.submitted
    trained = [group for batch in result.batches for group in batch]
    assert all([t.index for t in group.trajectories] == [0, 1] for group in trained)
    assert all(0 < len(d.group.trajectories) < 2 and d.disposition is Disposition.STALE for d in mended)
    assert max((remade for _, _, remade in numbers.values()), default=0) <= times + (times * 3 if recycle else 0)
    for version, batch in enumerate(result.batches, start=1):
        assert by == "mean" or all(version - group.oldest_version <= limit for group in batch)
        assert all(version - mean_version(t) <= limit for group in batch for t in group.trajectories)
    if not recycle:
        assert len(set(noises)) == len(noises)
        assert result.submitted - len(mended) == size


def test_a_group_that_is_mended_keeps_its_young_trajectory():
    def slow_second(attempt):
        return 0.9 if attempt.index == 1 else 0.05

    result, _ = ring(
        asynchronous(in_flight=12), latency=slow_second, steps=12, train=0.4, staleness=resample(1, times=3)
    )
    mended = {d.kept.trajectories[0].id for d in result.discards if d.kept is not None}
    trained = {t.id for batch in result.batches for g in batch for t in g.trajectories}
    assert mended & trained


def test_recycled_draws_that_had_been_mended_get_new_noise():
    data = RecyclingData(Tasks(1))
    draw = data.draw()
    data.take_back(Draw(draw.task, draw.draw, 2))
    again = RecyclingData(Tasks(0))
    again.inner.restore = lambda state: None
    again.inner.state = data.inner.state = dict
    again.restore(json.loads(json.dumps(data.state())))
    assert again.draw().remade == 2


def test_what_is_kept_survives_a_checkpoint():
    group = make_group(("a", "bb", "ccc"), (1.0, 0.0, 0.5), number=3)
    kept = group.replacing(group.trajectories[::2])
    tickets = Tickets()
    tickets.complete(kept)
    state = json.loads(json.dumps(tickets.state(), allow_nan=False))
    fresh = Tickets()
    fresh.restore(state)
    assert fresh.attempts_of_next(3) == 1
    ticket = fresh.start(None)
    assert (ticket.number, ticket.draw.remade, ticket.missing(3)) == (0, 1, [1])
    for before, after in zip(kept.trajectories, ticket.kept, strict=True):
        same = ("id", "reward", "index", "text")
        assert [getattr(before, name) for name in same] == [getattr(after, name) for name in same]
        for one, other in zip(before.sequences, after.sequences, strict=True):
            assert one.tokens.tobytes() == other.tokens.tobytes()
            assert one.logprobs.tobytes() == other.logprobs.tobytes()
            assert one.spans == other.spans
    assert fresh.state() == state
    data = to_data(kept)
    assert [t.id for t in from_data(data)] == [t.id for t in kept.trajectories]


def test_a_file_outside_is_not_written(tmp_path):
    for name in ("../evil", str(tmp_path / "evil")):
        try:
            from_data({name: ""})
        except ValueError as error:
            assert "no file of a trajectories folder" in str(error)
        else:
            raise AssertionError(name)


def oldest(limit=1, **options) -> OldestToken:
    return OldestToken(OldestTokenOptions(limit=limit, **options), CONTEXT)


VERSIONS = st.lists(st.integers(1, 6), min_size=1, max_size=5)


@given(done=VERSIONS, rest=st.lists(st.integers(1, 12), max_size=4), version=st.integers(6, 9), later=st.integers(0, 4),
       limit=st.integers(0, 6))  # fmt: skip
def test_hopeless_is_never_what_could_still_be_used(done, rest, version, later, limit):
    policy = oldest(limit)
    why = policy.hopeless(aged(*done), version)
    # exactly then: whatever the rest becomes and however late, it is stale; else it may be in time
    if why:
        assert not policy.judge(aged(*done, *rest), version + later).keep
    else:
        assert policy.judge(aged(*done, *[version] * len(rest)), version).keep
    assert policy.hopeless(aged(*done), version) == why
    assert not oldest(limit, cancel=False).hopeless(aged(*done), version)


@settings(max_examples=25, deadline=None)
@given(latencies=LATENCIES, limit=st.integers(0, 2), recycle=st.booleans(), refill=st.sampled_from(["sample", "group"]))
def test_cancelling_changes_what_is_wasted_and_not_what_can_be_trained(latencies, limit, recycle, refill):
    buffer = FifoOptions(recycle=("stale",) if recycle else ())
    result, at_once = ring(
        asynchronous(in_flight=12, refill=refill), latency=from_list(latencies), steps=25, size=30, train=0.4,
        staleness=oldest(limit), buffer=buffer,
    )  # fmt: skip
    assert at_once <= 12
    numbers = [g.number for batch in result.batches for g in batch] + [d.group.number for d in result.discards]
    assert sorted(numbers) == list(range(result.submitted))
    for discard in result.discards:
        if discard.disposition is Disposition.CANCELLED:
            open_ = [t for t in discard.group.trajectories if CANCELLED in t.metadata]
            done = [t for t in discard.group.trajectories if CANCELLED not in t.metadata]
            assert open_ and done and "versions old when it could be trained" in discard.reason
            fates = discard.dispositions
            assert {fates[t.id] for t in open_} == {Disposition.CANCELLED}
            assert {fates[t.id] for t in done} == {Disposition.STALE}
            assert len(result.batches) + 1 - min(t.oldest_version for t in done) > limit
    assert result.submitted - sum(d.recycle for d in result.discards) == 30


def test_a_straggler_of_a_doomed_group_is_cancelled_and_its_slot_is_free():
    def straggling(attempt):
        return 60.0 if attempt.group == 0 and attempt.index == 1 else 0.1

    asked = {"latency": straggling, "steps": 20, "train": 0.4}
    freed, _ = ring(asynchronous(in_flight=4), staleness=oldest(2), buffer=FifoOptions(recycle=("stale",)), **asked)
    kept, _ = ring(asynchronous(in_flight=4), staleness=oldest(2, cancel=False), **asked)
    (cancelled,) = [d for d in freed.discards if d.disposition is Disposition.CANCELLED]
    assert cancelled.group.number == 0 and cancelled.recycle
    assert not [d for d in kept.discards if d.disposition is Disposition.CANCELLED]
    assert freed.seconds < kept.seconds


async def test_a_rollout_that_never_began_closes_at_once():
    rollout = GroupsRollout(GroupsOptions(), CONTEXT)
    await asyncio.wait_for(rollout.close(), 1)
