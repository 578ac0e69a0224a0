"""The ring's living parts, joined by `assemble` and driven by `driver`."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from miles_core.contracts.engine import PauseMode
from miles_core.contracts.learning import Advantage
from miles_core.contracts.lifecycle import Clock, RealClock
from miles_core.contracts.model import ModelFiles, Renderer
from miles_core.contracts.observing import Evaluator, Runtime
from miles_core.contracts.rollout import Attempt, Buffer, Data, Generator, Rollout, RolloutContext, Schedule
from miles_core.contracts.transport import Delivery, Form, Transport, UpdateManifest
from miles_core.loop.account import Account
from miles_core.loop.occupancy import Occupancy
from miles_core.loop.record import Recorder
from miles_core.recipe.resolved import PhasePlan, Plan
from miles_core.rollout.fleet import Fleet
from miles_core.runtime.clients import RemoteEngine, RemoteTrainer
from miles_core.types.sampling import Sampling
from miles_core.types.trajectory import Group, Trajectory
from miles_core.weights.publication import publish

if TYPE_CHECKING:
    from miles_core.session.server import SessionServer


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
            )
        )

    def allow(self, step: int, *, taken: bool) -> None:
        """Let the rollout make what the schedule allows now, and no more than the phase will train."""
        reach = self.schedule.reach(step, taken)
        ahead = (self.end if reach is None else min(reach, self.end)) - step - taken
        if more := self.account.more(ahead, self.schedule.groups_per_step):
            self.rollout.grant(more)

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
    engines: tuple[RemoteEngine, ...]
    trainer: RemoteTrainer | None
    transport: Transport | None
    phases: tuple[Phase, ...]
    recorder: Recorder
    sessions: SessionServer | None = None
    fleet: Fleet | None = None

    @property
    def living(self) -> tuple[RemoteEngine, ...]:
        """The engines whose processes have not died; all of them when none is left: whoever asks is told."""
        return tuple(engine for engine in self.engines if engine.handle.alive) or self.engines

    async def close(self) -> None:
        """End the sessions and all processes."""
        if self.sessions is not None:
            await self.sessions.stop()
        await self.runtime.close()
        if self.sessions is not None and self.sessions.store.faults:
            self.recorder.note("calls to sessions were refused or failed", **self.sessions.store.faults)

    async def publish(self, version: int, pause: PauseMode = PauseMode.RETRACT) -> None:
        """All engines run `version` when this returns; `pause` says what becomes of requests in flight. Without
        engines there is nothing to publish to."""
        if not self.engines:
            return
        started, engines = self.recorder.clock.now(), self.living
        if self.trainer is not None and self.transport is not None:
            facts = await self.trainer.facts()
            manifest = UpdateManifest(version, Form.TENSORS, facts.tensors)
            transport, trainer = self.transport, self.trainer
            await publish(manifest, engines, lambda: transport.transfer(version, trainer, engines), pause)
        else:
            await publish(UpdateManifest(version, Form.DISK), engines, lambda: self._read_from_disk(engines), pause)
        self.recorder.emit("weights_published", version=version, seconds=self.recorder.clock.now() - started)

    async def _read_from_disk(self, engines: tuple[RemoteEngine, ...]) -> None:
        """Nobody trains: the engines read the model's own files."""
        if self.model is None:
            raise AssertionError("engines exist only with a model")
        delivery = Delivery(Form.DISK, "disk", {"path": str(self.model.path)})
        await asyncio.gather(*(engine.load(delivery) for engine in engines))
