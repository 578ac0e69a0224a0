"""The ring without processes: goes round as the driver does (`miles_core/loop/driver.py`), with real schedule, rollout
and buffer; attempts, training steps and publications are whatever they are said to be."""

from __future__ import annotations

from collections import defaultdict
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
from miles_core.loop.adapting import Adapting
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

    The trainer is idle while it waits for groups; engines are, where no attempt fills their slots. `held_back` and
    `engine_gap` are as in docs/metrics.md. `grown` says by how much each of the counters grew meanwhile.
    """

    def __init__(self, clock: Clock, window: tuple[int, int], counters: Counters) -> None:
        self.trainer_idle = self.engine_idle = self.engine_gap = self.held_back = self.in_flight = self.seconds = 0.0
        self.grown: dict[str, float] = {}
        self._clock, self._counters = clock, counters
        self._sums: dict[str, float] = defaultdict(float)
        self._first, self._last = window
        self._waited, self._since, self._done = 0.0, clock.now(), False
        self._before = counters()

    def begin(self, step: int) -> None:
        if step == self._last:
            self.end()
        if step == self._first:
            self._waited, self._since = 0.0, self._clock.now()
            self._before = self._counters()
            self._sums.clear()

    def note(self, step: Mapping[str, float]) -> None:
        """The metrics of a step that ended."""
        if not self._done and (seconds := step["time/step"]) > 0:
            held = step.get("time/held_back", 0.0)
            for name in ("engine_idle", "in_flight", "held_back"):
                self._sums[name] += step.get(f"time/{name}", 0.0) * seconds
            self._sums["engine_gap"] += step.get("time/engine_gap", 0.0) * (1 - held) * seconds
            self._sums["seconds"] += seconds
            self._sums["free"] += (1 - held) * seconds

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
            sums, stepped = self._sums, self._sums["seconds"] or 1.0
            self.trainer_idle = self._waited / self.seconds
            self.engine_idle, self.in_flight = sums["engine_idle"] / stepped, sums["in_flight"] / stepped
            self.held_back, self.engine_gap = sums["held_back"] / stepped, sums["engine_gap"] / (sums["free"] or 1.0)
            self.grown = {name: value - self._before[name] for name, value in self._counters().items()}


class StepTimes:
    """The metrics of each step that a schedule adapts by, named as in docs/metrics.md."""

    def __init__(self, occupancy: Occupancy, clock: Clock) -> None:
        self.occupancy = occupancy
        self._clock = clock
        self._began = clock.now()
        self._times: dict[str, float] = {}

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        began = self._clock.now()
        yield
        self._times[part] = self._times.get(part, 0.0) + self._clock.now() - began

    def metrics(self, groups: Several[Group]) -> dict[str, float]:
        """Since the last call."""
        now, times = self._clock.now(), {f"time/{part}": spent for part, spent in self._times.items()}
        step, self._began, self._times = now - self._began, now, {}
        tokens = sum(trajectory.sampled_count for group in groups for trajectory in group.trajectories)
        counts = {"rollout/groups": float(len(groups)), "rollout/tokens": float(tokens), "time/step": step}
        return {**times, **counts, **self.occupancy.metrics()}


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
    room: int | None = None  # groups that the buffer holds, as far as it says

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
        adapted: Callable[[int, str], None] = lambda _step, _said: None,
    ) -> Idleness:
        """`steps` times, or until the data ends. Version 1 trains step 0; `publish` brings the others; `record` ends a
        step. `warm` are the steps between which idleness is measured, from first to last by default. `adapted` is told
        after how many batches the schedule changed what."""
        each_step = StepTimes(Occupancy(self.slots, clock), clock)
        idleness = Idleness(clock, warm or (0, steps), counters)
        phase = self._phase(steps, each_step.occupancy, score or _unscored, clock)
        await phase.start(seed, cast(Any, NoEvents()))
        version = 1
        try:
            for step in range(steps):
                idleness.begin(step)
                phase.allow(step, taken=False)
                with idleness.waiting(), each_step.timed("rollout"):
                    groups = await phase.take(version)
                look = Took(step, version, groups, self.buffer.discarded(), self.buffer.metrics())
                took(look)
                if not groups:
                    break
                phase.allow(step, taken=True)
                phase.foresee(step, version)
                with each_step.timed("train"):
                    await train(groups)
                if step + 1 == steps or self.schedule.publishes(step + 1):
                    if self.schedule.pace.settles:
                        with idleness.waiting(), each_step.timed("rollout"):
                            await self.rollout.drain()
                    version += 1
                    with each_step.timed("publish"):
                        await publish(version, self.schedule.pace.pause)
                if record is not None:
                    await record()
                measured = {**look.metrics, **each_step.metrics(groups)}
                idleness.note(measured)
                self._adapt(phase, step + 1, measured, adapted)
        finally:
            await self.rollout.close()
        idleness.end()
        return idleness

    def _adapt(
        self, phase: Phase, step: int, metrics: Mapping[str, float], adapted: Callable[[int, str], None]
    ) -> None:
        assert phase.adapting is not None
        for said in phase.adapting.after(step, metrics, phase.occupancy):
            adapted(step, said)

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
            adapting=Adapting(self.schedule, self.rollout, self.buffer, self.room),
            clock=clock,
        )


async def _unscored(group: Group) -> Group:
    return group
