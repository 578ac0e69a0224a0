"""Newest first, bounded, and nothing is lost without a count."""

import asyncio

import pytest
from miles_core import BuildContext, Disposition, Group, RequestError, Status, Verdict
from miles_core.testing import make_group

from miles_plugin_xyz.buffer import XyzBuffer
from miles_plugin_xyz.options import XyzOptions


class NoEvenNumbers:
    """A filter."""

    def judge(self, group: Group) -> Verdict:
        return Verdict(group.number % 2 == 1, "even")


class OneVersion:
    """A staleness: only what the current weights made."""

    def judge(self, group: Group, version: int) -> Verdict:
        return Verdict(group.oldest_version == version, "old")


def made(capacity: float = 1.0) -> XyzBuffer:
    options = XyzOptions(capacity=capacity)
    buffer = XyzBuffer(options, BuildContext(seed=1, name="buffer"))
    buffer.connect(2, [NoEvenNumbers()], OneVersion())
    return buffer


async def taken(buffer: XyzBuffer, version: int = 1) -> list[int]:
    buffer.end()
    numbers = []
    while (group := await buffer.get(version)) is not None:
        numbers.append(group.number)
    return numbers


def test_the_newest_comes_first() -> None:
    async def story() -> list[int]:
        buffer = made()
        await buffer.put(make_group(number=1))
        await buffer.put(make_group(number=3))
        return await taken(buffer)

    assert asyncio.run(story()) == [3, 1]


def test_what_is_discarded_is_counted_with_its_reason() -> None:
    async def story() -> XyzBuffer:
        buffer = made()
        assert await buffer.put(make_group(number=2)) == Verdict(False, "even")
        assert not (await buffer.put(make_group(number=1, statuses=[Status.ABORTED, Status.COMPLETED]))).keep
        await buffer.put(make_group(number=5, version=1))
        assert await taken(buffer, version=2) == []
        return buffer

    buffer = asyncio.run(story())
    found = [discard.disposition for discard in buffer.discarded()]
    assert found == [Disposition.FILTERED, Disposition.ABORTED, Disposition.STALE]
    metrics = buffer.metrics()
    assert (metrics["buffer/filtered/even"], metrics["buffer/aborted"], metrics["buffer/stale"]) == (1, 1, 1)


def test_a_full_buffer_waits_for_room() -> None:
    async def story() -> None:
        buffer = made(capacity=0.5)  # of a batch of two: one
        await buffer.put(make_group(number=1))
        second = asyncio.create_task(buffer.put(make_group(number=3)))
        await asyncio.sleep(0)
        assert not second.done()
        await buffer.get(1)
        assert (await second).keep

    asyncio.run(story())


def test_what_waits_survives_a_checkpoint() -> None:
    async def story() -> list[int]:
        saved, resumed = made(), made()
        for number in (1, 3):
            await saved.put(make_group(number=number))
        with pytest.raises(RequestError, match="were not saved"):
            resumed.restore(saved.state())
        resumed.restore(saved.state(), saved.waiting())
        return await taken(resumed)

    assert asyncio.run(story()) == [3, 1]


def test_an_error_of_the_rollout_arrives() -> None:
    async def story() -> None:
        buffer = made()
        waiting = asyncio.create_task(buffer.get(1))
        await asyncio.sleep(0)
        buffer.end(ValueError("no more"))
        with pytest.raises(ValueError, match="no more"):
            await waiting

    asyncio.run(story())
