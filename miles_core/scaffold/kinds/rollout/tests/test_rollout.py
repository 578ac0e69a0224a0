"""How many groups are in flight, replacement of dropped ones, and the end."""

import asyncio
import json
from typing import Any

from miles_core import (
    Attempt,
    BuildContext,
    Group,
    RolloutContext,
    RunError,
    Sampling,
    Trajectory,
    Verdict,
)
from miles_core.testing import ManualClock, TwoTasks, make_trajectory

from miles_plugin_xyz.options import XyzOptions
from miles_plugin_xyz.rollout import XyzRollout


class Kept:
    """A buffer without a bound that drops the group numbers it was told to."""

    def __init__(self, *dropped: int) -> None:
        self._dropped = dropped
        self.groups: list[Group] = []
        self.ended = asyncio.Event()
        self.error: BaseException | None = None

    async def put(self, group: Group) -> Verdict:
        if group.number in self._dropped:
            return Verdict(False, "told so")
        self.groups.append(group)
        return Verdict(True)

    def end(self, error: BaseException | None = None) -> None:
        self.error = error
        self.ended.set()

    def connect(self, *_: Any, **__: Any) -> Any:
        """The driver's part of a buffer, which no rollout asks for."""
        raise AssertionError("not the rollout's business")

    get = waiting = discarded = metrics = state = restore = connect


class Bench:
    """A rollout of groups of two, whose attempts take ten seconds of a clock that the test moves."""

    def __init__(self, buffer: Kept, epochs: int | None = None, **options: Any) -> None:
        self.buffer = buffer
        self.clock = ManualClock()
        self.most = 0
        chosen = XyzOptions(**options)
        self.rollout = XyzRollout(chosen, BuildContext(seed=1, name="rollout"))
        self.context = RolloutContext(
            TwoTasks(epochs), buffer, self._generate, self._score, Sampling(), 2, 1, self.clock, self
        )

    async def _generate(self, attempt: Attempt) -> Trajectory:
        self.most = max(self.most, self.clock.sleeping + 1)
        await self.clock.sleep(10)
        return make_trajectory(task=attempt.task, index=attempt.index, id=attempt.id)

    async def _score(self, group: Group) -> Group:
        return group

    def emit(self, name: str, /, **facts: Any) -> None:
        assert name == "group_finished"


def test_only_so_many_groups_are_made_at_once() -> None:
    async def story() -> Bench:
        bench = Bench(Kept(), in_flight=3)
        await bench.rollout.start(bench.context)
        bench.rollout.grant(5)
        await bench.clock.advance(20)
        await bench.rollout.close()
        return bench

    bench = asyncio.run(story())
    assert [group.number for group in bench.buffer.groups] == [0, 1, 2, 3, 4]
    assert bench.most == 3 * 2


def test_a_dropped_group_is_replaced() -> None:
    async def story() -> list[int]:
        bench = Bench(Kept(0, 2))
        await bench.rollout.start(bench.context)
        bench.rollout.grant(2)
        await bench.clock.advance(30)
        await bench.rollout.drain()
        await bench.rollout.close()
        return [group.number for group in bench.buffer.groups]

    assert asyncio.run(story()) == [1, 3]


def test_it_gives_up_when_nothing_is_kept() -> None:
    async def story() -> BaseException | None:
        bench = Bench(Kept(*range(100)), patience=3)
        await bench.rollout.start(bench.context)
        bench.rollout.grant(1)
        await bench.clock.advance(100)
        await bench.buffer.ended.wait()
        await bench.rollout.close()
        return bench.buffer.error

    error = asyncio.run(story())
    assert isinstance(error, RunError) and "3 groups in a row" in str(error)


def test_the_end_of_the_data_is_the_end() -> None:
    async def story() -> int:
        bench = Bench(Kept(), epochs=1)
        await bench.rollout.start(bench.context)
        bench.rollout.grant(10)
        await bench.clock.advance(10)
        await bench.buffer.ended.wait()
        assert bench.buffer.error is None
        return len(bench.buffer.groups)

    assert asyncio.run(story()) == 2


def test_what_was_in_flight_is_made_again_under_its_numbers() -> None:
    async def story() -> list[tuple[int, str]]:
        stopped, resumed = Bench(Kept()), Bench(Kept())
        await stopped.rollout.start(stopped.context)
        stopped.rollout.grant(3)
        await stopped.clock.advance(5)
        state = json.loads(json.dumps(stopped.rollout.state()))
        await stopped.rollout.close()
        resumed.rollout.restore(state)
        await resumed.rollout.start(resumed.context)
        await resumed.clock.advance(10)
        await resumed.rollout.close()
        return [(group.number, group.task.id) for group in resumed.buffer.groups]

    assert asyncio.run(story()) == [(0, "sum-1"), (1, "sum-2"), (2, "sum-1")]
