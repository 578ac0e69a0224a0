"""What makes a recipe impossible although each of its sections is right by itself."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

from miles_core.contracts.capabilities import EXPORTED_WEIGHTS, NEEDS, NEEDS_AGENT, NEEDS_GPU, NO_ENGINE
from miles_core.contracts.component import KINDS
from miles_core.contracts.model import ModelCard
from miles_core.contracts.planning import RecipeFacts
from miles_core.errors import PluginError
from miles_core.host.load import guarded
from miles_core.recipe.choose import Chosen
from miles_core.recipe.devices import shows_gpu
from miles_core.recipe.faults import Faults
from miles_core.recipe.phases import PhaseChoice, Spoiled
from miles_core.recipe.yaml_text import Parts, dotted


def asks_engine(facts: RecipeFacts) -> bool:
    """Whether the phase's rollout samples tokens from engines."""
    declared = facts.capabilities.get("generator", frozenset()) | facts.capabilities.get("rollout", frozenset())
    return NO_ENGINE not in declared


def facts_of(
    phase: PhaseChoice, run: Mapping[str, Chosen], spoiled: Spoiled, card: ModelCard | None
) -> RecipeFacts | None:
    """The facts of one phase; None when its schedule has a fault. What else has one is named among the chosen."""
    schedule = phase.one.get("schedule")
    if schedule is None:
        return None
    everything = [*run.values(), *phase.all()]
    names = [*((each.kind, each.ref.name) for each in everything), *spoiled, *phase.spoiled]
    kinds = dict.fromkeys(kind for kind, _ in names)
    trainer = run.get("trainer")
    return RecipeFacts(
        group_size=schedule.options.group_size,
        groups_per_step=schedule.options.groups_per_step,
        optimizer_steps=int(getattr(trainer.options, "optimizer_steps", 1)) if trainer else 1,
        steps=phase.steps,
        sampling=phase.sampling,
        model=card,
        chosen={kind: tuple(name for of, name in names if of == kind) for kind in kinds},
        capabilities={
            kind: frozenset().union(*(each.capabilities for each in everything if each.kind == kind)) for kind in kinds
        },
        buffer_groups=_buffer_groups(phase, schedule.options.groups_per_step),
        staleness_limit=_staleness_limit(phase),
    )


def _buffer_groups(phase: PhaseChoice, groups_per_step: int) -> int | None:
    buffer = phase.one.get("buffer")
    capacity = getattr(buffer.options, "capacity", None) if buffer else None
    if not isinstance(capacity, int | float) or not math.isfinite(capacity):
        return None
    return int(capacity * groups_per_step)


def _staleness_limit(phase: PhaseChoice) -> int | None:
    staleness = phase.one.get("staleness")
    limit = getattr(staleness.options, "limit", None) if staleness else None
    return limit if isinstance(limit, int) else None


def check_presence(data: Mapping[str, Any], phase: PhaseChoice, faults: Faults) -> None:
    """Sections that must, or must not, stand together. `data` is the recipe as written."""
    trains, generates = _written(data, "trainer"), _written(data, "engine")
    at: Parts = phase.parts
    label = f"phase {phase.name!r}" if at else "the recipe"
    for name, why in (("data", "where tasks come from"), ("schedule", "how many groups make a step")):
        if name not in phase.given:
            faults.add(at, f"{label} has no `{name}:` ({why})", f"write `{name}: {{use: …}}`", say_path=False)
    if trains and "loss" not in phase.given:
        faults.add(at or ("trainer",), f"{label} has a trainer but no `loss:`", _LOSS_MEND, say_path=False)
    for name in ("loss", "advantage", "correction"):
        if name in phase.given and not trains:
            what = f"{label} has `{name}:` but no trainer"
            faults.add(_parts(phase, name), what, f"write `trainer:`, or remove `{name}:`", say_path=False)
    if "correction" in phase.given and "loss" not in phase.given:
        faults.add(_parts(phase, "correction"), f"{label} corrects a loss that it does not have", _LOSS_MEND)
    if not generates and any(EXPORTED_WEIGHTS not in each.capabilities for each in phase.many.get("evaluate", ())):
        what = f"{label} evaluates but has no engine to generate with"
        faults.add(_parts(phase, "evaluate"), what, "write `engine:`, or remove `evaluate:`", say_path=False)


_LOSS_MEND = "write `loss: {use: …}`, for rollouts alone remove `trainer:`"


def check_run(data: Mapping[str, Any], faults: Faults) -> None:
    """The same for sections of the whole run."""
    worked = [name for name in ("engine", "trainer") if _written(data, name)]
    if worked and not _written(data, "model"):
        faults.add((worked[0],), "there is no `model:` for it", "write `model: {use: …}`")
    if not worked:
        faults.add((), "the recipe has neither an engine nor a trainer", "write `engine:`, `trainer:` or both")


def check_needs(phase: PhaseChoice, run: Mapping[str, Chosen], facts: RecipeFacts, faults: Faults) -> None:
    """Kinds that a chosen component declares to need."""
    given = {*facts.chosen, *(_KIND_OF.get(name, name) for name in phase.given)}
    for each in (*run.values(), *phase.all()):
        for capability in sorted(each.capabilities):
            kind = capability.removeprefix(NEEDS)
            if capability.startswith(NEEDS) and kind in KINDS and kind not in given:
                name = each.ref.name
                faults.add(each.parts, f"{each.kind} {name!r} needs `{kind}:`, which the recipe lacks", f"add {kind}")


def check_engine(phase: PhaseChoice, facts: RecipeFacts, faults: Faults) -> None:
    """A generator that samples needs engines to sample from."""
    generator = phase.one.get("generator")
    if generator is not None and asks_engine(facts) and "engine" not in facts.chosen:
        faults.add(
            generator.parts,
            f"generator {generator.ref.name!r} asks an engine for tokens, and the recipe has no `engine:`",
            "write `engine: {use: …}`, or a generator that needs none: {use: demonstration}",
            say_path=False,
        )


_KIND_OF = {"rewards": "reward", "filters": "filter", "evaluate": "evaluator"}


def check_judged(phase: PhaseChoice, facts: RecipeFacts, faults: Faults) -> None:
    """Advantages come from rewards, and only what an engine sampled, or an earlier run scored, has one."""
    if "advantage" in phase.one and NO_ENGINE in facts.capabilities.get("generator", frozenset()):
        if NO_ENGINE in facts.capabilities.get("rollout", frozenset()):
            return
        faults.add(
            phase.one["advantage"].parts,
            f"generator {phase.one['generator'].ref.name!r} asks no engine, so nothing has a reward to compare",
            f"write `advantage: null` in phase {phase.name!r}",
        )


def check_arithmetic(phase: PhaseChoice, run: Mapping[str, Chosen], facts: RecipeFacts, faults: Faults) -> None:
    """Numbers that contradict each other."""
    schedule = _parts(phase, "schedule")
    trajectories = facts.groups_per_step * facts.group_size
    if "trainer" in run and trajectories % facts.optimizer_steps:
        faults.add(
            ("trainer", "optimizer_steps"),
            f"is {facts.optimizer_steps}, which does not divide the {trajectories} trajectories of a step "
            f"({facts.groups_per_step} groups x {facts.group_size}, {dotted(schedule)})",
            f"choose a divisor of {trajectories}",
        )
    buffer = phase.one.get("buffer")
    capacity = getattr(buffer.options, "capacity", None) if buffer else None
    if buffer and isinstance(capacity, int | float) and capacity * facts.groups_per_step < 1:
        faults.add(
            (*buffer.parts, "capacity"),
            f"is {capacity}: times {facts.groups_per_step} groups per step leaves room for no group",
            f"choose {1 / facts.groups_per_step:g} or more",
        )
    samples = NO_ENGINE not in facts.capabilities.get("generator", frozenset())
    if facts.model and "engine" in run and samples and facts.sampling.max_new_tokens >= facts.model.context:
        faults.add(
            (*_parts(phase, "generator"), "sampling", "max_new_tokens"),
            f"is {facts.sampling.max_new_tokens}, but the context of {facts.model.name} is {facts.model.context} "
            "tokens, prompt included",
            f"choose a number well below {facts.model.context}",
        )


def check_options(phase: PhaseChoice, run: Mapping[str, Chosen], facts: RecipeFacts, faults: Faults) -> None:
    """What the components' own options say against the rest of the recipe."""
    for each in (*run.values(), *phase.all()):
        check = getattr(each.options, "check", None)
        if check is None:
            continue
        try:
            sentences = guarded(
                each.plugin, f"failed to check {each.kind} {each.ref.name!r}", partial(_listed, check, facts)
            )
        except PluginError as error:
            if not faults:  # with faults, the facts have gaps that a check need not expect
                faults.add_plugin(error.problems)
            continue
        for sentence in sentences:
            faults.add(each.parts, sentence)


def warnings_of(phase: PhaseChoice, run: Mapping[str, Chosen]) -> list[str]:
    """What is legal, but worth knowing."""
    label = f"phase {phase.name!r}: " if phase.parts else ""
    warnings = []
    if "advantage" in phase.given and "rewards" not in phase.given:
        warnings.append(f"{label}no rewards: only trajectories that bring their own reward can be trained on")
    if "generator" in phase.one and NEEDS_AGENT not in phase.one["generator"].capabilities:
        generator = phase.one["generator"].ref.name
        for idle in (phase.one[section] for section in ("agent", "matcher") if section in phase.one):
            warnings.append(
                f"{label}{idle.kind} {idle.ref.name!r} is never asked: generator {generator!r} works without one"
            )
    recycled = getattr(phase.one["buffer"].options, "recycle", ()) if "buffer" in phase.one else ()
    if "stale" in recycled and "staleness" not in phase.given:
        warnings.append(f"{label}the buffer recycles stale groups, and without `staleness:` nothing is ever stale")
    if "transport" in run and not ("engine" in run and "trainer" in run):
        warnings.append("the transport has nothing to do: it needs an engine and a trainer")
    for each in (*run.values(), *phase.all()):
        if NEEDS_GPU in each.capabilities and not shows_gpu():
            warnings.append(f"{each.kind} {each.ref.name!r} needs a GPU, and this machine shows none")
    return warnings


def _listed(check: Any, facts: RecipeFacts) -> list[str]:
    return [str(sentence) for sentence in check(facts)]


def _written(data: Mapping[str, Any], name: str) -> bool:
    return data.get(name) is not None


def _parts(phase: PhaseChoice, name: str) -> Parts:
    """Where the phase's section stands, or would."""
    if name in phase.one:
        return phase.one[name].parts
    return (*phase.parts, name)
