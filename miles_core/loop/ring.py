"""The ring's living parts, joined by `assemble` and driven by `driver`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

from miles_core.contracts.engine import PauseMode
from miles_core.contracts.learning import Advantage
from miles_core.contracts.lifecycle import Clock, RealClock
from miles_core.contracts.model import ModelFiles, Renderer
from miles_core.contracts.observing import Evaluator, Runtime
from miles_core.contracts.rollout import (
    Attempt,
    Buffer,
    Data,
    Generator,
    Rollout,
    RolloutContext,
    Schedule,
    Staleness,
    ignored,
)
from miles_core.contracts.trainer import StepReport
from miles_core.contracts.transport import Transport
from miles_core.errors import WorkerDied
from miles_core.loop.account import Account
from miles_core.loop.adapting import Adapting
from miles_core.loop.evaluation_fleet import EvaluationFleet
from miles_core.loop.keeper import LOOK_SECONDS, Keeper, Weights
from miles_core.loop.occupancy import Occupancy
from miles_core.loop.record import Recorder
from miles_core.loop.weight_sources import DiskWeights, TrainerWeights
from miles_core.recipe.resolved import PhasePlan, Plan
from miles_core.runtime.clients import RemoteEngine, RemoteTrainer
from miles_core.types.batch import Batch
from miles_core.types.sampling import Sampling
from miles_core.types.trajectory import Group, Trajectory

Result = TypeVar("Result")

if TYPE_CHECKING:
    from miles_core.session.server import SessionServer


class Starved(WorkerDied):
    """No engine serves, and those that are up again cannot get weights: the trainer has gone on from those that the
    others had, and goes no further without groups."""


@dataclass(frozen=True, slots=True)
class Phase:
    """One phase, built. Batches [first, end) of the run are its own."""

    plan: PhasePlan
    first: int
    end: int
    data: Data
    generator: Generator
    rollout: Rollout
    schedule: Schedule
    buffer: Buffer
    advantage: Advantage | None
    evaluators: tuple[Evaluator, ...]
    generate: Callable[[Attempt], Coroutine[Any, Any, Trajectory]]
    score: Callable[[Group], Coroutine[Any, Any, Group]]
    evaluation_generate: Callable[[Attempt], Coroutine[Any, Any, Trajectory]]
    evaluation_score: Callable[[Group], Coroutine[Any, Any, Group]]
    evaluation_sampling: Sampling
    occupancy: Occupancy | None
    own_engines: Mapping[str, Callable[[Attempt], Coroutine[Any, Any, Trajectory]]] = field(default_factory=dict)
    """By evaluation: attempts on the engines that only it uses."""
    staleness: Staleness | None = None
    adapting: Adapting | None = None
    account: Account = field(default_factory=Account)
    clock: Clock = field(default_factory=RealClock)

    async def start(self, seed: int, recorder: Recorder) -> None:
        if self.occupancy is not None:
            self.occupancy.metrics()  # what was before this phase is not its own
        await self.rollout.start(
            RolloutContext(
                data=self.data,
                buffer=self.buffer,
                generate=self.generate,
                score=self.score,
                sampling=self.plan.sampling,
                group_size=self.schedule.group_size,
                seed=seed,
                clock=self.clock,
                events=recorder,
                pace=self.schedule.pace,
                hopeless=getattr(self.staleness, "hopeless", None),
                held_back=self.occupancy.hold if self.occupancy is not None else ignored,
            )
        )

    def allow(self, step: int, *, taken: bool) -> None:
        """Let the rollout make what the schedule allows now, and no more than the phase will train."""
        reach = self.schedule.reach(step, taken)
        ahead = (self.end if reach is None else min(reach, self.end)) - step - taken
        if more := self.account.more(ahead, self.schedule.groups_per_step):
            self.rollout.grant(more)

    def adapt(self, step: int, recorder: Recorder, metrics: Mapping[str, float]) -> None:
        """After so many batches, with the metrics of the last: let the schedule move what it may, on record."""
        if self.adapting is None:
            return
        for said in self.adapting.after(step, metrics, self.occupancy):
            recorder.emit("schedule_adapted", step=step, what=said, **self.adapting.settings())

    def tell_unchanged(self, step: int, recorder: Recorder) -> None:
        """At the end of a phase whose schedule may adapt and never did: why."""
        if why := self.adapting.unchanged() if self.adapting is not None else "":
            recorder.note(f"the schedule changed nothing in phase {self.plan.name}: {why}", step=step)

    def foresee(self, step: int, version: int) -> None:
        """Batch `step` was taken at `version`: let what is in flight and too old for the next one be cancelled."""
        foresee = getattr(self.rollout, "foresee", None)
        if foresee is not None:
            foresee(version + self.schedule.publishes(step + 1))

    async def take(self, version: int) -> list[Group]:
        """The groups of one batch, in submission order; fewer, or none, when the data ended."""
        groups: list[Group] = []
        while len(groups) < self.schedule.groups_per_step:
            group = await self.buffer.get(version)
            if group is None:
                break
            groups.append(group)
        self.account.batches += 1
        return sorted(groups, key=lambda group: group.number)


@dataclass(frozen=True, slots=True)
class Ring:
    """Everything that lives while a run goes."""

    plan: Plan
    model: ModelFiles | None
    renderer: Renderer | None
    runtime: Runtime
    trainer: RemoteTrainer | None
    transport: Transport | None
    phases: tuple[Phase, ...]
    recorder: Recorder
    sessions: SessionServer | None = None
    keeper: Keeper | None = None
    evaluation_fleets: Mapping[str, EvaluationFleet] = field(default_factory=dict)

    @property
    def engines(self) -> tuple[RemoteEngine, ...]:
        """The engines whose processes live."""
        return self.keeper.engines if self.keeper is not None else ()

    @property
    def wants_weights(self) -> bool:
        """Whether a publication is due whatever the schedule says: an engine that was started again waits for it."""
        return self.keeper is not None and self.keeper.wanting

    def loss(self) -> str:
        """What the ring cannot go on without, and that died; "" while it can go on."""
        if self.trainer is not None and not self.trainer.handle.alive:
            return "the trainer"
        if self.keeper is not None and self.keeper.spent:
            return "the last engine"
        return ""

    async def watch(self) -> None:
        """Raises WorkerDied when the trainer's process ends, whoever waits for it or not. Ends otherwise never."""
        while self.trainer is None or self.trainer.handle.alive:
            await asyncio.sleep(LOOK_SECONDS)
        await self.trainer.facts()

    async def close(self) -> None:
        """End the sessions and all processes."""
        for fleet in self.evaluation_fleets.values():
            await fleet.close()
        if self.sessions is not None:
            await self.sessions.stop()
        if self.keeper is not None:
            await self.keeper.close()
        await self.runtime.close()
        if self.sessions is not None and self.sessions.store.faults:
            self.recorder.note("calls to sessions were refused or failed", **self.sessions.store.faults)

    async def learn(self, batch: Batch) -> StepReport:
        """The trainer's step. Engines that come up meanwhile wait for the publication after it."""
        if self.trainer is None:
            raise AssertionError("batches are made for a trainer")
        if self.keeper is not None:
            await self.keeper.weights_move()
        return await self.trainer.step(batch)

    async def publish(self, version: int, pause: PauseMode = PauseMode.RETRACT) -> None:
        """All engines run `version` when this returns; `pause` says what becomes of requests in flight. Without
        engines there is nothing to publish to."""
        if self.keeper is None:
            return
        started = self.recorder.clock.now()
        await self.keeper.publish(self.weights, version, pause)
        self.recorder.emit("weights_published", version=version, seconds=self.recorder.clock.now() - started)

    async def unless_starved(self, waiting: Coroutine[Any, Any, Result]) -> Result | None:
        """What `waiting` returns; None, and it is cancelled, when it waits in vain: no engine serves, and the one that
        is up again waits for weights that the trainer holds no more."""
        if self.keeper is None:
            return await waiting
        work, starving = asyncio.ensure_future(waiting), asyncio.ensure_future(self.keeper.starved())
        try:
            await asyncio.wait({work, starving}, return_when=asyncio.FIRST_COMPLETED)
            return work.result() if work.done() else None
        finally:
            for task in (work, starving):
                task.cancel()
            await asyncio.gather(work, starving, return_exceptions=True)

    @property
    def weights(self) -> Weights:
        """Where engines get theirs."""
        if self.trainer is not None and self.transport is not None:
            return TrainerWeights(self.trainer, self.transport)
        if self.model is None:
            raise AssertionError("engines exist only with a model")
        return DiskWeights(self.model.path)
