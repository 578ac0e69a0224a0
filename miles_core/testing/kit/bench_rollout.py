"""What stands around a rollout that is tried: endless tasks, a buffer that keeps what it gets, attempts that wait."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from typing import Any

from miles_core.contracts.lifecycle import RealClock
from miles_core.contracts.pace import Pace
from miles_core.contracts.rollout import Attempt, Discard, Draw, Filter, RolloutContext, Staleness, Verdict
from miles_core.testing.fakes.makers import make_task, make_trajectory
from miles_core.testing.fakes.two_tasks import TwoTasks
from miles_core.types.sampling import NoiseKey, Sampling
from miles_core.types.task import Task
from miles_core.types.trajectory import Group, Trajectory

GROUP_SIZE = 2


@dataclass(slots=True)
class RolloutBench:
    """Everything around a rollout: endless tasks, a buffer that keeps all but the numbers in `rejected`, and attempts
    that wait until `held` is set, of which the first of each group does not wait when the others are `straggling`."""

    rejected: frozenset[int] = frozenset()
    straggling: bool = False
    hopeless: Callable[[Group, int], str] | None = None
    pace: Pace = field(default_factory=Pace)
    noises: list[NoiseKey] = field(default_factory=list)
    error: Exception | None = None
    tasks: int | None = None
    kept: list[Group] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    attempts: int = 0
    in_flight: int = 0
    most_in_flight: int = 0
    drawn: int = 0
    ends: list[BaseException | None] = field(default_factory=list)
    held: asyncio.Event = field(default_factory=asyncio.Event)
    events: list[tuple[str, Mapping[str, Any]]] = field(default_factory=list)

    def context(self) -> RolloutContext:
        self.held.set()
        return RolloutContext(
            data=_Tasks(self),
            buffer=_Keeps(self),
            generate=self.generate,
            score=self.score,
            sampling=Sampling(max_new_tokens=8),
            group_size=GROUP_SIZE,
            seed=1,
            clock=RealClock(),
            events=_Events(self),
            pace=self.pace,
            hopeless=self.hopeless,
        )

    async def generate(self, attempt: Attempt) -> Trajectory:
        self.attempts += 1
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        try:
            self.noises.append(attempt.noise())
            await asyncio.sleep(0)
            if not (self.straggling and attempt.index == 0):
                await self.held.wait()
            if self.error is not None:
                raise self.error
            return make_trajectory("3", task=attempt.task, index=attempt.index, id=attempt.id)
        finally:
            self.in_flight -= 1

    async def score(self, group: Group) -> Group:
        await asyncio.sleep(0)
        rewards = [float(trajectory.index == 0) for trajectory in group.trajectories]
        judged = (t.judged(reward, {}) for t, reward in zip(group.trajectories, rewards, strict=True))
        return group.replacing(tuple(judged))

    async def until(self, done: Callable[[], bool]) -> bool:
        """Whether it comes true soon."""
        for _ in range(500):
            if done():
                return True
            await asyncio.sleep(0.005)
        return done()


@dataclass(slots=True)
class _Tasks:
    """Data: `bench.tasks` of them, or endless."""

    bench: RolloutBench

    def draw(self) -> Draw | None:
        if self.bench.tasks is not None and self.bench.drawn >= self.bench.tasks:
            return None
        self.bench.drawn += 1
        return Draw(make_task(f"{self.bench.drawn}+1=", "3", id=f"task-{self.bench.drawn}"), 0)

    def held_out(self, count: int) -> list[Task]:
        return list(TwoTasks.HELD_OUT[:count])

    def size(self) -> int | None:
        return self.bench.tasks

    def state(self) -> Mapping[str, Any]:
        return {"drawn": self.bench.drawn}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.bench.drawn = int(state["drawn"])


@dataclass(slots=True)
class _Keeps:
    """A buffer without bounds."""

    bench: RolloutBench

    def connect(self, groups_per_step: int, filters: Several[Filter], staleness: Staleness | None, **_: Any) -> None:
        raise AssertionError("the driver connects the buffer, not the rollout")

    async def put(self, group: Group) -> Verdict:
        await asyncio.sleep(0)
        if len(self.bench.kept) + len(self.bench.refused) in self.bench.rejected:
            self.bench.refused.append(group.number)
            return Verdict(False, "rejected")
        self.bench.kept.append(group)
        return Verdict(True)

    async def get(self, version: int) -> Group | None:
        raise AssertionError("the driver takes groups, not the rollout")

    def waiting(self) -> list[Group]:
        return list(self.bench.kept)

    def end(self, error: BaseException | None = None) -> None:
        self.bench.ends.append(error)

    def discarded(self) -> list[Discard]:
        return []

    def metrics(self) -> dict[str, float]:
        return {}

    def state(self) -> Mapping[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any], groups: Several[Group] = ()) -> None:
        pass


@dataclass(slots=True)
class _Events:
    bench: RolloutBench

    def emit(self, name: str, /, **facts: Any) -> None:
        self.bench.events.append((name, facts))
