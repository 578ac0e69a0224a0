"""The buffer: orders, bounds, the three discards, what comes back, and what a checkpoint keeps."""

from __future__ import annotations

import asyncio
import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from miles_core import BuildContext, Disposition, Group, RequestError, Status, Verdict
from miles_core.rollout.fifo_buffer import FifoBuffer, FifoOptions
from miles_core.testing import make_group, make_task

CONTEXT = BuildContext(1, "test")


def buffer(*, ordered=False, per_step=2, filters=(), staleness=None, discarding=None, **options) -> FifoBuffer:
    made = FifoBuffer(FifoOptions(**options), CONTEXT)
    made.connect(per_step, filters, staleness, ordered=ordered, discarding=discarding)
    return made


def group(number: int, version: int = 1, statuses=None) -> Group:
    return make_group(("a", "bb"), (1.0, 0.0), task=make_task(id=f"t{number}"), number=number, statuses=statuses)


def aborted(number: int, *rest: Status) -> Group:
    return group(number, statuses=(Status.ABORTED, *(rest or (Status.COMPLETED,))))


@settings(max_examples=60, deadline=None)
@given(arrival=st.permutations(range(12)), lost=st.sets(st.integers(0, 11)), capacity=st.integers(1, 6))
def test_in_submission_order_arrival_does_not_matter(arrival, lost, capacity):
    async def scenario() -> list[int]:
        box = buffer(ordered=True, per_step=1, capacity=capacity)
        puts = []
        for number in arrival:
            puts.append(asyncio.create_task(box.put(aborted(number) if number in lost else group(number))))
            await asyncio.sleep(0)
            assert len(box.waiting()) <= capacity
        taken = [(await asyncio.wait_for(box.get(1), 5)).number for _ in range(12 - len(lost))]
        await asyncio.gather(*puts)
        box.end()
        assert await box.get(1) is None
        return taken

    assert asyncio.run(scenario()) == [number for number in range(12) if number not in lost]


@settings(max_examples=60, deadline=None)
@given(arrival=st.permutations(range(12)), cut=st.integers(0, 11), capacity=st.integers(1, 6), ordered=st.booleans())
def test_what_waits_survives_a_checkpoint_in_its_order(arrival, cut, capacity, ordered):
    async def scenario() -> list[int]:
        box = buffer(ordered=ordered, per_step=1, capacity=capacity)
        puts = [asyncio.create_task(box.put(group(number))) for number in arrival]
        await asyncio.sleep(0)
        taken = []
        while len(taken) < cut and (not ordered or (box.waiting()[:1] and box.waiting()[0].number == len(taken))):
            taken.append((await box.get(1)).number)
        state, waiting = json.loads(json.dumps(box.state())), box.waiting()
        unfinished = [number for number, put in zip(arrival, puts, strict=True) if not put.done()]
        for put in puts:
            put.cancel()
        await asyncio.gather(*puts, return_exceptions=True)
        in_flight = [number for number in unfinished if number not in {g.number for g in waiting}]
        fresh = buffer(ordered=ordered, per_step=1, capacity=capacity)
        fresh.restore(state, waiting)
        again = [asyncio.create_task(fresh.put(group(number))) for number in in_flight]
        taken += [(await asyncio.wait_for(fresh.get(1), 5)).number for _ in range(12 - len(taken))]
        await asyncio.gather(*again)
        return taken

    taken = asyncio.run(scenario())
    assert sorted(taken) == list(range(12))
    assert taken == sorted(taken) if ordered else True


async def test_a_group_that_waits_for_room_is_not_yet_in_the_buffer():
    box = buffer(per_step=1, capacity=1.0)
    await box.put(group(0))
    late = asyncio.create_task(box.put(group(1)))
    await asyncio.sleep(0)
    assert [g.number for g in box.waiting()] == [0]
    assert (await box.get(1)).number == 0
    assert await late == Verdict(True)
    assert [g.number for g in box.waiting()] == [1]


class Never:
    def judge(self, group: Group, version: int) -> Verdict:
        return Verdict(version < 2, "old")


async def test_discards_are_told_and_come_back_a_limited_number_of_times():
    told = []
    box = buffer(staleness=Never(), discarding=told.append, recycle=("stale",), recycle_times=2, capacity=4.0)
    for number in range(3):
        await box.put(make_group(("a",), (1.0,), number=number, task=make_task(id="same")))
    box.end()
    waiting = asyncio.create_task(box.get(2))
    await asyncio.sleep(0)
    assert [(d.group.number, d.disposition, d.recycle) for d in told] == [
        (0, Disposition.STALE, True),
        (1, Disposition.STALE, True),
        (2, Disposition.STALE, False),
    ]
    assert not waiting.done()  # a recycled group may still come
    box.end()
    assert await waiting is None


async def test_a_lost_trajectory_need_not_lose_its_group():
    three = (Status.COMPLETED, Status.TRUNCATED)
    whole, partial = buffer(), buffer(allow_partial_groups=True)
    lame = make_group(("", "b", "c"), (None, 1.0, 0.0), statuses=(Status.ABORTED, *three))
    alone = make_group(("", "b"), (None, 1.0), statuses=(Status.ABORTED, Status.COMPLETED), number=1)
    assert await whole.put(lame) == Verdict(False, "aborted")
    assert await partial.put(lame) == Verdict(True)
    assert await partial.put(alone) == Verdict(False, "aborted")
    metrics = partial.metrics()
    assert (metrics["buffer/partial"], metrics["buffer/aborted"]) == (1, 1)


async def test_a_group_whose_attempts_all_failed_is_a_class_of_its_own():
    box = buffer(recycle=("aborted", "stale"))
    failed = make_group(("", ""), statuses=(Status.FAILED, Status.FAILED))
    assert await box.put(failed) == Verdict(False, "every attempt failed")
    (discard,) = box.discarded()
    assert (discard.disposition, discard.recycle) == (Disposition.FAILED, False)
    assert box.metrics()["buffer/failed"] == 1


async def test_lengths_of_kept_and_discarded_are_measured_apart():
    class Long:
        def judge(self, group: Group) -> Verdict:
            return Verdict(len(group.trajectories[0].text) < 5, "long")

    box = buffer(filters=(Long(),), capacity=9.0)
    for number in range(6):
        await box.put(make_group(("a" * (number + 1),), (1.0,), number=number))
    for _ in range(4):
        await box.get(1)
    metrics = box.metrics()
    assert metrics["buffer/length_kept_mean"] == 3.5  # the stop token counts
    assert metrics["buffer/length_filtered_p50"] == 6.5
    assert "buffer/length_kept_mean" not in box.metrics()


async def test_counts_survive_a_checkpoint():
    box = buffer(capacity=4.0)
    await box.put(aborted(0))
    await box.put(group(1))
    fresh = buffer(capacity=4.0)
    fresh.restore(json.loads(json.dumps(box.state())), box.waiting())
    assert fresh.metrics() == box.metrics()


async def test_an_error_of_the_rollout_comes_before_what_waits():
    box = buffer()
    await box.put(group(0))
    box.end(RequestError("broken"))
    with pytest.raises(RequestError, match="broken"):
        await box.get(1)
