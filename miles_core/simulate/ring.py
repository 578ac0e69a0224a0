"""The ring without processes: goes round as the driver does (`miles_core/loop/driver.py`), with real schedule, rollout
and buffer; attempts, training steps and publications are whatever they are said to be."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping
from collections.abc import Sequence as Several
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, cast

from miles_core.contracts.engine import PauseMode
from miles_core.contracts.lifecycle import Clock, NoEvents
from miles_core.contracts.rollout import Buffer, Discard, Filter, Rollout, Schedule, Staleness
from miles_core.loop.account import Returns
from miles_core.loop.occupancy import Generate, Occupancy
from miles_core.loop.ring import Phase
from miles_core.rollout.recycled import RecyclingData
from miles_core.types.sampling import Sampling
from miles_core.types.trajectory import Group

Score = Callable[[Group], Any]
Train = Callable[[Several[Group]], Awaitable[None]]
Counters = Callable[[], Mapping[str, float]]
Publish = Callable[[int, PauseMode], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class Took:
    """What one look into the buffer gave: the groups of a batch under the current weight version, what was thrown away
    since the look before, and the buffer's metrics."""

    step: int
    version: int
    groups: list[Group]
    discards: list[Discard]
    metrics: dict[str, float]


class Idleness:
    """Who was idle how much between the beginnings of step `first` and of step `last`, or the end.

    The trainer is idle while it waits for groups; engines are, where no attempt fills their slots. `grown` says by how
    much each of the counters grew meanwhile.
    """

    def __init__(self, occupancy: Occupancy, clock: Clock, window: tuple[int, int], counters: Counters) -> None:
        self.trainer_idle = self.engine_idle = self.in_flight = self.seconds = 0.0
        self.grown: dict[str, float] = {}
        self._occupancy, self._clock, self._counters = occupancy, clock, counters
        self._first, self._last = window
        self._waited, self._since, self._done = 0.0, clock.now(), False
        self._before = counters()

    def begin(self, step: int) -> None:
        if step == self._last:
            self.end()
        if step == self._first:
            self._waited, self._since = 0.0, self._clock.now()
            self._before = self._counters()
            self._occupancy.metrics()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        began = self._clock.now()
        yield
        self._waited += self._clock.now() - began

    def end(self) -> None:
        """Later calls change nothing."""
        if self._done:
            return
        self._done = True
        self.seconds = self._clock.now() - self._since
        if self.seconds > 0:
            measured = self._occupancy.metrics()
            self.trainer_idle = self._waited / self.seconds
            self.engine_idle = measured.get("time/engine_idle", 0.0)
            self.in_flight = measured.get("time/in_flight", 0.0)
            self.grown = {name: value - self._before[name] for name, value in self._counters().items()}


@dataclass(frozen=True, slots=True)
class Parts:
    """What goes round. The buffer is not yet connected."""

    schedule: Schedule
    rollout: Rollout
    buffer: Buffer
    data: RecyclingData
    filters: Several[Filter]
    staleness: Staleness | None
    generate: Generate
    sampling: Sampling

    @property
    def slots(self) -> int:
        """Trajectories in flight at most."""
        return self.schedule.pace.in_flight or self.schedule.groups_per_step * self.schedule.group_size

    async def go_round(
        self,
        steps: int,
        *,
        train: Train,
        publish: Publish,
        clock: Clock,
        took: Callable[[Took], None],
        warm: tuple[int, int] | None = None,
        score: Score | None = None,
        record: Callable[[], Awaitable[None]] | None = None,
        counters: Counters = dict,
        seed: int = 1,
    ) -> Idleness:
        """`steps` times, or until the data ends. Version 1 trains step 0; `publish` brings the others; `record` ends a
        step. `warm` are the steps between which idleness is measured, from first to last by default."""
        occupancy = Occupancy(self.slots, clock)
        idleness = Idleness(occupancy, clock, warm or (0, steps), counters)
        phase = self._phase(steps, occupancy, score or _unscored, clock)
        await phase.start(seed, cast(Any, NoEvents()))
        version = 1
        try:
            for step in range(steps):
                idleness.begin(step)
                phase.allow(step, taken=False)
                with idleness.waiting():
                    groups = await phase.take(version)
                took(Took(step, version, groups, self.buffer.discarded(), self.buffer.metrics()))
                if not groups:
                    break
                phase.allow(step, taken=True)
                phase.foresee(step, version)
                await train(groups)
                if step + 1 == steps or self.schedule.publishes(step + 1):
                    if self.schedule.pace.settles:
                        with idleness.waiting():
                            await self.rollout.drain()
                    version += 1
                    await publish(version, self.schedule.pace.pause)
                if record is not None:
                    await record()
        finally:
            await self.rollout.close()
        idleness.end()
        return idleness

    def _phase(self, steps: int, occupancy: Occupancy, score: Score, clock: Clock) -> Phase:
        self.buffer.connect(
            self.schedule.groups_per_step,
            self.filters,
            self.staleness,
            ordered=self.schedule.pace.ordered,
            discarding=Returns(self.data, self.rollout),
        )
        generate = occupancy.around(self.generate)
        return Phase(
            plan=cast(Any, SimpleNamespace(sampling=self.sampling)),
            first=0,
            end=steps,
            data=self.data,
            generator=cast(Any, None),
            rollout=self.rollout,
            schedule=self.schedule,
            buffer=self.buffer,
            advantage=None,
            evaluators=(),
            generate=generate,
            score=score,
            evaluation_generate=generate,
            evaluation_score=score,
            evaluation_sampling=self.sampling,
            occupancy=occupancy,
            staleness=self.staleness,
            clock=clock,
        )


async def _unscored(group: Group) -> Group:
    return group
