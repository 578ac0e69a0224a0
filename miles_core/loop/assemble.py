"""Joining the wings, once: the plan's names become living objects, and each gets what it works with.

Nothing heavy happens in the driver's own process: engines and trainers are built in processes of the runtime, from
`ComponentRef`s; data, rewards, filters and advantages are built here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from miles_core.contracts.capabilities import EXPORTED_WEIGHTS, OWN_ENGINES
from miles_core.contracts.component import BuildContext, ComponentRef
from miles_core.contracts.engine import EngineCapabilities, EngineClient, GenerateRequest, GenerateResult, PauseMode
from miles_core.contracts.lifecycle import EventSink, NoEvents, RealClock
from miles_core.contracts.model import ModelFiles, Renderer
from miles_core.contracts.observing import Handle, Runtime
from miles_core.contracts.rollout import Agent, Attempt, GenerateContext, Generator, Matcher, Rollout
from miles_core.contracts.sessions import Sessions
from miles_core.contracts.transport import Form
from miles_core.errors import Problem, RequestError
from miles_core.loop import preflight
from miles_core.loop.account import Returns
from miles_core.loop.adapting import Adapting
from miles_core.loop.evaluation_fleet import evaluation_fleets, evaluation_keepers
from miles_core.loop.keeper import Care, Keeper
from miles_core.loop.layers import Layers
from miles_core.loop.occupancy import Occupancy
from miles_core.loop.record import Recorder
from miles_core.loop.ring import Phase, Ring
from miles_core.loop.sessions import longest_sequence, serve_sessions
from miles_core.loop.shape import shaped
from miles_core.recipe.resolved import PhasePlan, Plan
from miles_core.recipe.schema import FaultsSection
from miles_core.rollout.attempts import AttemptMaker
from miles_core.rollout.recycled import RecyclingData
from miles_core.rollout.scoring import Scorer, WeighedReward
from miles_core.rollout.single_turn import SingleTurn
from miles_core.runtime.bounded import BoundedHandle, in_time
from miles_core.runtime.clients import RemoteEngine, RemoteTrainer
from miles_core.types.trajectory import Group, Trajectory

Generate = Callable[[Attempt], Coroutine[Any, Any, Trajectory]]


class NoEngines:
    """The engine client of a run that has no engine."""

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        raise RequestError(
            f"request {request.id!r} asks for tokens, but the recipe has no engine",
            mend="add an `engine:` section, or a generator that needs none",
        )


@dataclass(frozen=True, slots=True)
class _Builder:
    """Builds the plan's components with the contexts that they are due."""

    plan: Plan
    folder: Path | None
    model: ModelFiles | None

    def here(self, ref: ComponentRef, name: str = "") -> Any:
        """Built in the driver. Raises PluginError when it lacks a method of its kind's contract."""
        context = BuildContext(self.plan.seed, name or f"{ref.kind}-{ref.name}", self.folder, self.model)
        return shaped(ref, ref.build(context))

    def worker(self, name: str, *parts: ComponentRef | None) -> BuildContext:
        return BuildContext(
            self.plan.seed, name, self.folder, self.model, {ref.kind: ref for ref in parts if ref is not None}
        )


def rehearse(plan: Plan) -> None:
    """Build what lives in the driver and check what the run would draw, before there is a folder or a process.

    Raises RequestError for data that cannot be read, prompts that do not fit, rewards that cannot be built.
    """
    model, renderer = _materialise(plan)
    builder = _Builder(plan, None, model)
    drafts = [_Draft(builder, phase) for phase in plan.phases]
    around = _surroundings(NoEngines(), renderer, None, NoEvents())
    preflight.check(_join(drafts, around), renderer, model.card if model else None)


async def assemble(plan: Plan, folder: Path, recorder: Recorder) -> Ring:
    """Build everything. What was started is ended again when something cannot be built."""
    model, renderer = await asyncio.to_thread(_materialise, plan)
    builder = _Builder(plan, folder, model)
    runtime: Runtime = builder.here(plan.runtime)
    sessions = keeper = None
    keepers: dict[str, Keeper] = {}
    try:
        drafts = [_Draft(builder, phase) for phase in plan.phases]
        keeper = _keeper(builder, runtime, recorder) if any(draft.needs_engine for draft in drafts) else None
        keepers = evaluation_keepers(plan, partial(_keeper, builder, runtime, recorder))
        trainer = await _start_workers(builder, runtime, [*([keeper] if keeper else []), *keepers.values()], recorder)
        engines = keeper.engines if keeper is not None else ()
        all_engines = [*engines, *(engine for each in keepers.values() for engine in each.engines)]
        await _check_engines(plan, {draft.schedule.pace.pause for draft in drafts}, all_engines)
        clients: EngineClient = keeper.fleet if keeper is not None else NoEngines()
        if keeper is not None:
            keeper.fleet.answered = recorder.ledger.note
        sessions = await serve_sessions(plan, clients, renderer, engines)
        around = _surroundings(clients, renderer, sessions, recorder)
        fleets = await evaluation_fleets(plan, keepers, renderer)
        own = {name: replace(around, engines=f.keeper.fleet, sessions=f.sessions) for name, f in fleets.items()}
        phases = _join(drafts, replace(around, longest=await longest_sequence(plan, engines)), own)
        transport = builder.here(plan.transport) if plan.transport is not None and trainer is not None else None
        return Ring(plan, model, renderer, runtime, trainer, transport, phases, recorder, sessions, keeper, fleets)
    except BaseException:
        for each in keepers.values():
            await each.close()
        if sessions is not None:
            await sessions.stop()
        if keeper is not None:
            await keeper.close()
        await runtime.close()
        raise


async def start_trainer(plan: Plan, folder: Path) -> tuple[Runtime, RemoteTrainer]:
    """Only the trainer of a plan, to export from a checkpoint. Raises RequestError when the recipe has none."""
    if plan.trainer is None:
        raise RequestError("the run has no trainer, so there are no trained weights", where=str(folder))
    model, _ = await asyncio.to_thread(_materialise, plan)
    builder = _Builder(plan, folder, model)
    runtime: Runtime = builder.here(plan.runtime)
    try:
        handle = await runtime.start(plan.trainer, builder.worker("trainer", plan.transport, plan.precision))
    except BaseException:
        await runtime.close()
        raise
    return runtime, RemoteTrainer(handle)


def _materialise(plan: Plan) -> tuple[ModelFiles | None, Renderer | None]:
    if plan.model is None:
        return None, None
    spec = plan.model.build(BuildContext(plan.seed, "model"))
    files: ModelFiles = spec.materialise()
    return files, spec.renderer()


def _keeper(
    builder: _Builder, runtime: Runtime, events: EventSink, prefix: str = "engine", count: int | None = None
) -> Keeper | None:
    """The owner of the engines' lives: of the rollout's, or of `count` others; None in a recipe without an engine."""
    plan, engine = builder.plan, builder.plan.engine
    if engine is None:
        return None

    def start(name: str) -> Coroutine[Any, Any, Handle]:
        return runtime.start(engine, builder.worker(name, plan.transport, plan.precision))

    names = [f"{prefix}-{number}" for number in range(count or plan.replicas)]
    return Keeper(names, start, events, care_of(plan.faults))


def care_of(faults: FaultsSection) -> Care:
    """How engines are cared for, as the recipe says."""
    return Care(
        restarts=faults.engine_restarts,
        restart_delay=faults.restart_delay,
        health_seconds=faults.health_seconds,
        wait_seconds=faults.wait_seconds,
        request_deaths=faults.request_deaths,
    )


async def _start_workers(
    builder: _Builder, runtime: Runtime, keepers: Several[Keeper], events: EventSink
) -> RemoteTrainer | None:
    """Trainer and engines, side by side: each takes seconds to import its libraries."""
    plan = builder.plan
    starting: list[Coroutine[Any, Any, Any]] = []
    if plan.trainer is not None:
        start = runtime.start(plan.trainer, builder.worker("trainer", plan.transport, plan.precision))
        starting.append(in_time(start, "trainer", plan.faults.wait_seconds))
    starting += [start for keeper in keepers for start in keeper.starts()]
    started = await asyncio.gather(*starting)
    if plan.trainer is None:
        return None
    seconds, setting = plan.faults.trainer_seconds, "faults.trainer_seconds"
    return RemoteTrainer(BoundedHandle(started[0], seconds, setting, events=events))


async def _check_engines(plan: Plan, pauses: set[PauseMode], engines: Several[RemoteEngine]) -> None:
    """What the recipe asks for, every engine must declare."""
    problems: list[Problem] = []
    for engine in engines:
        able = await engine.capabilities()
        problems += [Problem(what, f"engine {engine.name!r}") for what in _unable(plan, pauses, able)]
    if problems:
        raise RequestError(problems)


def _unable(plan: Plan, pauses: set[PauseMode], able: EngineCapabilities) -> list[str]:
    form = Form.TENSORS if plan.trainer is not None else Form.DISK
    lacks = []
    if form not in able.forms:
        lacks.append(f"cannot take weights as {form.value}")
    if any(p.sampling.top_p < 1 or p.sampling.top_k > 0 for p in plan.phases) and not able.truncation:
        lacks.append("cannot sample with top_p or top_k")
    lacks += [f"cannot pause as {mode.value} while weights are published" for mode in pauses - able.pause_modes]
    return lacks


class _Draft:
    """A phase whose components are built, before engines exist."""

    def __init__(self, builder: _Builder, plan: PhasePlan) -> None:
        self.plan = plan
        self.data = RecyclingData(builder.here(plan.data))
        self.layers = Layers(
            [(ref, builder.here(ref, f"middleware-{place}-{ref.name}")) for place, ref in enumerate(plan.middleware)]
        )
        self.agent = self._agent(builder)
        self.matcher: Matcher | None = builder.here(plan.matcher) if plan.matcher else None
        self.generator: Generator = self.layers.around("generator", builder.here(plan.generator))
        self.rollout: Rollout = self.layers.around("rollout", builder.here(plan.rollout))
        self.schedule = builder.here(plan.schedule)
        self.buffer = builder.here(plan.buffer)
        self.advantage = builder.here(plan.advantage) if plan.advantage else None
        self.evaluators = tuple(builder.here(ref) for ref in plan.evaluators)
        filters = tuple(builder.here(ref) for ref in plan.filters)
        self.staleness = builder.here(plan.staleness) if plan.staleness else None
        self.buffer.connect(
            self.schedule.groups_per_step,
            filters,
            self.staleness,
            ordered=self.schedule.pace.ordered,
            discarding=Returns(self.data, self.rollout),
        )
        self.adapting = Adapting(self.schedule, self.rollout, self.buffer, plan.facts.buffer_groups)
        self.scorer = Scorer(
            [
                WeighedReward(reward.name, reward.weight, builder.here(reward.ref), reward.ref.owner)
                for reward in plan.rewards
            ]
        )

    def _agent(self, builder: _Builder) -> Agent | None:
        if self.plan.agent is None:
            self.layers.refuse("agent", f"phase {self.plan.name!r} has no agent")
            return None
        agent: Agent = builder.here(self.plan.agent)
        return self.layers.around("agent", agent)

    @property
    def whose(self) -> str:
        """How errors name who makes the attempts."""
        around = [f"{ref.name!r} of {ref.owner}" for ref in self.plan.middleware]
        inside = f" inside middleware {' and '.join(around)}" if around else ""
        return f"generator {self.plan.generator.name!r} of {self.plan.generator.owner}{inside}"

    @property
    def samples(self) -> bool:
        """Whether this phase's rollouts ask engines for tokens."""
        return self.generator.needs_engine and "no-engine" not in self.plan.facts.capabilities.get("rollout", ())

    @property
    def needs_engine(self) -> bool:
        evaluated = [ref for ref in self.plan.evaluators if not ref.capabilities & {OWN_ENGINES, EXPORTED_WEIGHTS}]
        return self.samples or bool(evaluated)

    def occupancy(self) -> Occupancy:
        """A measure of how busy this phase keeps the engines."""
        schedule = self.schedule
        return Occupancy(schedule.pace.in_flight or schedule.groups_per_step * schedule.group_size, RealClock())


def _surroundings(
    clients: EngineClient, renderer: Renderer | None, sessions: Sessions | None, events: EventSink
) -> GenerateContext:
    """What every generator of the run works with; its phase adds the agent."""
    if renderer is None:
        raise RequestError("the recipe has no model, so prompts cannot be rendered", mend="add a `model:` section")
    return GenerateContext(clients, renderer, RealClock(), sessions=sessions, events=events)


def _join(
    drafts: list[_Draft], around: GenerateContext, own_engines: Mapping[str, GenerateContext] | None = None
) -> tuple[Phase, ...]:
    """The phases with their attempts bound. An evaluation in a phase that asks no engine is made as the next phase
    that does would make it. `own_engines`: the surroundings of those that have engines of their own."""
    phases: list[Phase] = []
    first = 0
    for place, draft in enumerate(drafts):
        sampling_draft = next((d for d in drafts[place:] if d.generator.needs_engine), None)
        evaluating = sampling_draft or draft
        evaluator = sampling_draft.generator if sampling_draft else draft.layers.around("generator", SingleTurn())
        end = first + draft.plan.steps
        occupancy = draft.occupancy()
        phases.append(
            Phase(
                plan=draft.plan,
                first=first,
                end=end,
                data=draft.data,
                generator=draft.generator,
                rollout=draft.rollout,
                schedule=draft.schedule,
                buffer=draft.buffer,
                advantage=draft.advantage,
                evaluators=draft.evaluators,
                generate=occupancy.around(_attempts(draft.generator, draft, around)),
                score=draft.scorer if draft.generator.needs_engine else _unscored,
                evaluation_generate=occupancy.around(_attempts(evaluator, evaluating, around)),
                evaluation_score=draft.scorer,
                evaluation_sampling=evaluating.plan.sampling,
                occupancy=occupancy if draft.samples else None,
                own_engines={name: _attempts(evaluator, evaluating, its) for name, its in (own_engines or {}).items()},
                staleness=draft.staleness,
                adapting=draft.adapting,
            )
        )
        first = end
    return tuple(phases)


def _attempts(generator: Generator, draft: _Draft, around: GenerateContext) -> Generate:
    stops = around.renderer.stop_tokens
    name = draft.plan.agent.name.rpartition(":")[2] if draft.plan.agent is not None else ""
    context = replace(around, agent=draft.agent, agent_name=name, matcher=draft.matcher)
    make = AttemptMaker(generator, context, draft.whose)

    async def generate(attempt: Attempt) -> Trajectory:
        return await make(replace(attempt, sampling=replace(attempt.sampling, stop_tokens=stops)))

    return generate


async def _unscored(group: Group) -> Group:
    """Demonstrations are not judged."""
    return group
