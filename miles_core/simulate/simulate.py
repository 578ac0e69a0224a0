"""From a plan to a forecast: the recipe's own schedule, rollout, buffer and policies, gone round in virtual time."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from collections.abc import Sequence as Several
from dataclasses import dataclass
from typing import Any

from miles_core.contracts.component import BuildContext, ComponentRef
from miles_core.contracts.rollout import Schedule
from miles_core.errors import RequestError
from miles_core.observe.bottleneck import bottleneck, length_bias
from miles_core.recipe.resolved import PhasePlan, Plan
from miles_core.rollout.recycled import RecyclingData
from miles_core.simulate.attempts import Attempts, NumberedTasks
from miles_core.simulate.engines import ModelledFleet
from miles_core.simulate.lengths import Lengths, usual_lengths
from miles_core.simulate.ring import Idleness, Parts, Took
from miles_core.simulate.service import Service
from miles_core.simulate.tally import Tally
from miles_core.simulate.virtual_time import VirtualClock, run_in_virtual_time
from miles_core.types.trajectory import Disposition, Group

STEADY = (0.1, 0.7)
"""Idleness is measured between these shares of the steps: after the first answers, before nothing new is started."""

Progress = Callable[[int, int, int, float], None]
"""Told of steps done, steps in all, trajectories so far, and virtual seconds."""


@dataclass(frozen=True, slots=True)
class Question:
    """What to simulate. `trajectories` are those that are to be trained, in whole batches; None: the recipe's steps."""

    engines: int
    trajectories: int | None
    lengths: Lengths | None
    service: Service
    seed: int


def phase_of(plan: Plan, name: str | None) -> PhasePlan:
    """The phase of that name, else the only one that asks engines. Raises RequestError for none or several."""
    able = {phase.name: phase for phase in plan.phases if _samples(phase)}
    if name is not None:
        if name in able:
            return able[name]
        what = "asks no engine" if name in {phase.name for phase in plan.phases} else "does not exist"
        raise RequestError(f"phase {name!r} {what}", where="--phase", mend=f"one of: {', '.join(able)}")
    if not able:
        raise RequestError("no phase of the recipe asks engines for tokens, so there is nothing to simulate")
    if len(able) > 1:
        raise RequestError(f"several phases ask engines: {', '.join(able)}", mend="choose one with --phase")
    return next(iter(able.values()))


def simulate(plan: Plan, phase: PhasePlan, question: Question, progress: Progress | None = None) -> dict[str, Any]:
    """The forecast as JSON data; the same for the same question. No engine, trainer, model or data is built."""
    return run_in_virtual_time(_simulate(plan, phase, question, progress or _nobody))


async def _simulate(plan: Plan, phase: PhasePlan, question: Question, progress: Progress) -> dict[str, Any]:
    clock, service, limit = VirtualClock(), question.service, phase.sampling.max_new_tokens
    fleet, lengths = ModelledFleet(service, question.engines), question.lengths or usual_lengths(limit)
    schedule: Schedule = _build(plan, phase.schedule)
    attempts = Attempts(fleet, lengths, service, schedule.group_size, limit, question.seed)
    tally = Tally(attempts.open, needs_reward=phase.advantage is not None)
    parts = _parts(plan, phase, schedule, attempts)
    steps = _steps(question, phase, schedule.groups_per_step * schedule.group_size)

    def took(what: Took) -> None:
        tally.note(what)
        progress(what.step, steps, tally.trajectories, clock.now())

    def counters() -> dict[str, float]:
        busy, slots = fleet.worked()
        recording = tally.batches * service.record_seconds
        trained = tally.became[Disposition.TRAINED]
        tokens = tally.trained_tokens
        return {"busy": busy, "slots": slots, "tokens": tokens, "trajectories": trained, "recording": recording}

    async def train(groups: Several[Group]) -> None:
        tokens = sum(len(sequence) for g in groups for t in g.trajectories for sequence in t.sequences)
        await clock.sleep(service.training(tokens))

    adapted: list[dict[str, Any]] = []
    idleness = await parts.go_round(
        steps,
        train=train,
        publish=fleet.publish,
        record=lambda: clock.sleep(service.record_seconds),
        clock=clock,
        took=took,
        warm=(int(STEADY[0] * steps), max(1, int(STEADY[1] * steps))),
        counters=counters,
        seed=question.seed,
        adapted=lambda step, said: adapted.append({"step": step, "what": said}),
    )
    tally.note(Took(steps, 0, [], parts.buffer.discarded(), {}))
    tally.close(parts.buffer.waiting())
    asked = {"phase": phase.name, "schedule": phase.schedule.name.rpartition(":")[2], "drawn_from": lengths.name}
    found = _report(question, parts, tally, idleness)
    return {**asked, **found, **({"adapted": adapted} if adapted else {}), "seconds": clock.now()}


def _parts(plan: Plan, phase: PhasePlan, schedule: Schedule, attempts: Attempts) -> Parts:
    """The recipe's own, but for data and generator."""
    return Parts(
        schedule=schedule,
        rollout=_build(plan, phase.rollout),
        buffer=_build(plan, phase.buffer),
        data=RecyclingData(NumberedTasks()),
        filters=tuple(_build(plan, ref) for ref in phase.filters),
        staleness=_build(plan, phase.staleness) if phase.staleness else None,
        generate=attempts,
        sampling=phase.sampling,
        room=phase.facts.buffer_groups,
    )


def _report(question: Question, parts: Parts, tally: Tally, idleness: Idleness) -> dict[str, Any]:
    return {
        "engines": question.engines,
        "seed": question.seed,
        "batch": {"groups_per_step": parts.schedule.groups_per_step, "group_size": parts.schedule.group_size},
        "in_flight_limit": parts.slots,
        "longest": parts.sampling.max_new_tokens,
        "assumed": question.service.model_dump(),
        "steps": tally.batches,
        "trajectories": {kind.value: count for kind, count in sorted(tally.became.items()) if count},
        "discarded_groups": dict(sorted(tally.reasons.items())),
        "staleness": _ages(tally.ages),
        "lengths": tally.lengths(),
        "steady": _steady(idleness, question),
        "length_bias": _length_bias(tally),
        "bottleneck": bottleneck(
            {"time/trainer_idle": _trainer_idle(idleness), "time/engine_idle": idleness.engine_idle}
        ),
    }


def _steady(idleness: Idleness, question: Question) -> dict[str, float]:
    seconds = idleness.seconds
    if seconds <= 0:
        return {}
    grown, engine_seconds = idleness.grown, seconds * question.engines
    return {
        "seconds": seconds,
        "trainer_idle": _trainer_idle(idleness),
        "engine_idle": idleness.engine_idle,
        "held_back": idleness.held_back,
        "engine_gap": idleness.engine_gap,
        "in_flight": idleness.in_flight,
        "engines_without_requests": 1 - grown["busy"] / engine_seconds,
        "slots_without_requests": 1 - grown["slots"] / (engine_seconds * question.service.slots),
        "tokens_per_second": grown["tokens"] / seconds,
        "trajectories_per_second": grown["trajectories"] / seconds,
    }


def _length_bias(tally: Tally) -> str:
    lengths = tally.lengths()
    means = {"buffer/length_stale_mean": "stale", "buffer/length_kept_mean": "trained"}
    return length_bias([{name: lengths[kind]["mean"] for name, kind in means.items() if kind in lengths}])


def _trainer_idle(idleness: Idleness) -> float:
    """Of rollout, training and publication together, as in `time/trainer_idle`."""
    whole = idleness.seconds - idleness.grown.get("recording", 0.0)
    return idleness.trainer_idle * idleness.seconds / whole if whole > 0 else 0.0


def _ages(ages: Counter[int]) -> dict[str, float]:
    """Versions by which groups were behind when they were trained."""
    if not ages:
        return {}
    return {"mean": sum(age * count for age, count in ages.items()) / ages.total(), "max": max(ages)}


def _steps(question: Question, phase: PhasePlan, batch: int) -> int:
    return phase.steps if question.trajectories is None else math.ceil(question.trajectories / batch)


def _samples(phase: PhasePlan) -> bool:
    """Whether engines are asked; a rollout of saved groups, or a generator of demonstrations, asks none."""
    return "no-engine" not in {c for kind in ("rollout", "generator") for c in phase.facts.capabilities.get(kind, ())}


def _build(plan: Plan, ref: ComponentRef) -> Any:
    return ref.build(BuildContext(plan.seed, f"{ref.kind}-{ref.name}"))


def _nobody(step: int, steps: int, trajectories: int, seconds: float) -> None:
    pass
