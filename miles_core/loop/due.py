"""One evaluation that is due: of which weights, where, and within which limits. And how far a run is."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from miles_core.contracts.blame import text_of
from miles_core.contracts.capabilities import EXPORTED_WEIGHTS, OWN_ENGINES
from miles_core.contracts.component import ComponentRef
from miles_core.contracts.observing import Evaluation, EvaluationContext, Evaluator
from miles_core.contracts.options import TIME_LIMIT
from miles_core.contracts.pace import Refill
from miles_core.contracts.rollout import Attempt
from miles_core.errors import RequestError
from miles_core.loop.evaluation_fleet import evaluation_name
from miles_core.loop.measuring import Versions
from miles_core.loop.ring import Phase, Ring
from miles_core.types.trajectory import Group, Trajectory

QUEUE = 1
"""Evaluations that may wait for an earlier one, where the options do not say."""


@dataclass(frozen=True, slots=True)
class Pending:
    """An evaluation that has begun and not ended, as a checkpoint keeps it. `phase` is its place among the phases."""

    phase: int
    name: str
    step: int
    version: int


@dataclass(slots=True)
class Progress:
    """How far a run is: batches trained, the weight version in use, and evaluations under way. Only the driver counts
    the version up. `ahead`: the trainer has learned since that version was published."""

    step: int = 0
    version: int = 1
    resumed: bool = False
    ahead: bool = False
    pending: list[Pending] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Due:
    """`last`: its phase is over; `final`: the run is; `must`: it is not skipped for others; `fault`: why it cannot even
    begin; `began`, `started`: when it was due, and when measuring began."""

    phase: Phase
    ref: ComponentRef
    evaluator: Evaluator
    pending: Pending
    began: float
    must: bool = False
    final: bool = False
    last: bool = False
    fault: str = ""
    given_up: str = ""
    started: float = 0.0
    versions: Versions = field(default_factory=lambda: Versions(0))

    @classmethod
    def of(cls, ring: Ring, phase: Phase, place: int, progress: Progress, *, last: bool) -> Due:
        """What the phase's evaluator at `place` would measure now."""
        evaluator, ref = phase.evaluators[place], phase.plan.evaluators[place]
        number = next(number for number, each in enumerate(ring.phases) if each is phase)
        pending = Pending(number, name_of(evaluator, ref), progress.step, progress.version)
        due = cls(phase, ref, evaluator, pending, ring.recorder.clock.now(), versions=Versions(pending.version))
        due.last = due.must = last
        due.final = last and phase is ring.phases[-1]
        return due

    @classmethod
    def again(cls, ring: Ring, pending: Pending) -> Due | None:
        """What a checkpoint says was under way; None when the recipe has no such evaluation."""
        for phase in ring.phases[pending.phase : pending.phase + 1]:
            for evaluator, ref in zip(phase.evaluators, phase.plan.evaluators, strict=True):
                if name_of(evaluator, ref) == pending.name:
                    now = ring.recorder.clock.now()
                    return cls(phase, ref, evaluator, pending, now, must=True, versions=Versions(pending.version))
        return None

    @property
    def name(self) -> str:
        return self.pending.name

    @property
    def step(self) -> int:
        return self.pending.step

    @property
    def version(self) -> int:
        return self.pending.version

    @property
    def key(self) -> tuple[str, int]:
        return self.name, self.step

    @property
    def own_engines(self) -> bool:
        return OWN_ENGINES in self.ref.capabilities

    @property
    def exported(self) -> bool:
        return EXPORTED_WEIGHTS in self.ref.capabilities

    @property
    def on_rollout(self) -> bool:
        return not self.own_engines and not self.exported

    @property
    def limit(self) -> float:
        return float(self.ref.options.get("time_limit", TIME_LIMIT))

    @property
    def queue(self) -> int:
        return int(self.ref.options.get("queue", QUEUE))

    @property
    def yields(self) -> bool:
        """New weights end it."""
        return self.ref.options.get("on_update") == "skip"

    @property
    def beside(self) -> bool:
        """Its requests go beside the rollout's. Rounds are reproducible to the last bit because nothing is computed
        beside them; after the last batch there is nothing to be beside of."""
        wanted = self.ref.options.get("beside")
        ahead = self.phase.schedule.pace.refill is not Refill.ROUND
        return not self.last and (ahead if wanted is None else bool(wanted))

    def is_due(self, last: bool) -> bool:
        """Asks the evaluator. What it raises is the evaluation's fault."""
        try:
            return bool(self.evaluator.due(self.step, last))
        except Exception as error:
            self.fault = f"`due` raised {text_of(error)}"
            return True

    def missing(self, why: str) -> Evaluation:
        return Evaluation(self.name, self.version, self.step, skipped=why)

    def split(self, found: Evaluation) -> Iterator[Evaluation]:
        """A missing point of an evaluator with several datasets is one of each."""
        names = getattr(self.evaluator, "datasets", ()) if found.skipped else ()
        yield from [replace(found, name=f"{found.name}/{name}") for name in names] or [found]

    def context(self, ring: Ring, weights: Path | None) -> EvaluationContext:
        """What the evaluator works with, looked at and counted."""
        phase, recorder = self.phase, ring.recorder
        total = len(self.evaluator.tasks(phase.data))
        generate = phase.evaluation_generate
        if self.own_engines:
            generate = phase.own_engines[evaluation_name(self.ref)]
        elif self.exported:
            generate = _no_engine
        return EvaluationContext(
            data=phase.data,
            generate=self.versions.around(generate),
            score=_counted(phase.evaluation_score, partial(recorder.progress, f"evaluation {self.name}"), total),
            sampling=phase.evaluation_sampling,
            seed=ring.plan.seed,
            record=partial(_record, ring, self.name, self.step),
            weights=weights,
        )


def read_pending(state: Mapping[str, Any]) -> list[Pending]:
    """What a checkpoint's state says was under way. Raises RequestError when that is damaged."""
    try:
        return [Pending(**each) for each in state.get("evaluations", ())]
    except TypeError as error:
        raise RequestError(f"the checkpoint is damaged: evaluations of state.json: {error}") from error


def name_of(evaluator: Evaluator, ref: ComponentRef) -> str:
    try:
        return str(evaluator.name)
    except Exception:
        return ref.name


def _record(ring: Ring, name: str, step: int, groups: Several[Group]) -> None:
    ring.recorder.keep_evaluation(name, step, list(groups))


async def _no_engine(attempt: Attempt) -> Trajectory:
    raise RequestError(f"attempt {attempt.id!r} asks an engine, but an evaluation over exported weights has none")


def _counted(
    score: Callable[[Group], Coroutine[Any, Any, Group]], tell: Callable[[int, int], None], total: int
) -> Callable[[Group], Coroutine[Any, Any, Group]]:
    """`score`, telling the view how many groups have been scored."""
    done = 0

    async def counting(group: Group) -> Group:
        nonlocal done
        scored = await score(group)
        done += 1
        tell(done, total)
        return scored

    return counting
