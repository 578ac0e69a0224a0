"""From a recipe to a plan, or to all of its faults at once; no process is started and nothing is downloaded."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from miles_core.contracts.component import BuildContext
from miles_core.contracts.model import ModelCard
from miles_core.contracts.planning import RecipeFacts
from miles_core.errors import MilesError, PluginError
from miles_core.host.decide import Decision
from miles_core.host.load import guarded
from miles_core.host.lock import LockedPlugin, lock_options
from miles_core.host.registry import Registry
from miles_core.host.request import PluginRequest, recipe_alone
from miles_core.host.scan import Index, scan
from miles_core.recipe import rules
from miles_core.recipe.arithmetic import arithmetic
from miles_core.recipe.choose import Chooser, Chosen
from miles_core.recipe.document import Document, read_document
from miles_core.recipe.enabling import enable, lock_enabled, meant, source_of_plugins, written_plugins
from miles_core.recipe.evaluations import check_evaluations, evaluation_card
from miles_core.recipe.faults import Faults
from miles_core.recipe.phases import PhaseChoice, Spoiled, choose_phases, choose_run
from miles_core.recipe.research import code_folders, written_folders
from miles_core.recipe.resolved import NamedReward, PhasePlan, Plan
from miles_core.recipe.schema import Recipe, RuntimeSection
from miles_core.recipe.shape import read_shape
from miles_core.recipe.written import sources_of, written_recipe

Phases = tuple[tuple[PhaseChoice, RecipeFacts], ...]


def load_plan(
    path: Path | Mapping[str, Any], overrides: Sequence[str] = (), request: PluginRequest | None = None
) -> tuple[Plan, Registry]:
    """The plan of a recipe (a YAML file, or a mapping from Python) with `path=value` overrides, and the registry of
    the plugins that it enables. `request` is what other sources than the recipe say of plugins (None: nothing).

    Raises RequestError or PluginError with every fault: file, line, dotted path, value, what was expected, the
    nearest name.
    """
    return resolve(read_document(path, overrides), scan(), recipe_alone(os.environ) if request is None else request)


def resolve(document: Document, index: Index, request: PluginRequest) -> tuple[Plan, Registry]:
    """The same for a document that was read and plugins that were found."""
    faults = Faults(document)
    recipe = read_shape(document, faults)
    folders = code_folders(document.folder, recipe.code)
    decision, registry, complete = enable(document, recipe, index, request, folders, faults)
    chooser = Chooser(registry, faults, folders, incomplete=not complete, meant=meant(decision))
    run, trackers, spoiled = choose_run(recipe, chooser)
    choices = choose_phases(recipe, chooser, faults)
    card = model_card(run.get("model"), recipe.seed, faults)
    phases = _checked(document, choices, run, spoiled, card, faults)
    faults.raise_all()
    return _plan(document, recipe, decision, registry, chooser, run, trackers, phases, card), registry


def model_card(model: Chosen | None, seed: int, faults: Faults) -> ModelCard | None:
    """What the model says of itself from its configuration alone."""
    if model is None:
        return None
    context = BuildContext(seed=seed, name="model")
    try:
        card: ModelCard = guarded(
            model.plugin,
            f"failed to describe model {model.ref.name!r}",
            lambda: model.ref.build(context).describe(),
            passing=(MilesError,),
        )
        return card
    except PluginError as error:
        faults.add_plugin(error.problems)
    except MilesError as error:
        faults.add_error(model.parts, error)
    return None


def _checked(
    document: Document,
    choices: Sequence[PhaseChoice],
    run: Mapping[str, Chosen],
    spoiled: Spoiled,
    card: ModelCard | None,
    faults: Faults,
) -> Phases:
    """The phases with their facts, after every rule had its say."""
    rules.check_run(document.data, faults)
    phases = []
    for phase in choices:
        rules.check_presence(document.data, phase, faults)
        facts = rules.facts_of(phase, run, spoiled, card)
        if facts is None:
            continue
        rules.check_needs(phase, run, facts, faults)
        rules.check_engine(phase, facts, faults)
        rules.check_judged(phase, facts, faults)
        rules.check_arithmetic(phase, run, facts, faults)
        check_evaluations(phase, faults)
        rules.check_options(phase, run, facts, faults)
        phases.append((phase, facts))
    return tuple(phases)


def _plan(
    document: Document,
    recipe: Recipe,
    decision: Decision,
    registry: Registry,
    chooser: Chooser,
    run: Mapping[str, Chosen],
    trackers: Sequence[Chosen],
    phases: Phases,
    card: ModelCard | None,
) -> Plan:
    name = recipe.name or document.stem
    choices = [phase for phase, _ in phases]
    everything = [*run.values(), *trackers, *(each for phase in choices for each in phase.all())]
    research = chooser.research.values()
    lines = [*(lock_enabled(plugin) for plugin in registry.plugins), *(each.lock for each in research)]
    code = written_folders(document.folder, recipe.code, [*_folders(registry), *(each.folder for each in research)])
    data = written_recipe(name, recipe, run, trackers, choices, code, written_plugins(decision, registry))
    ref = {section: chosen.ref for section, chosen in run.items()}
    runtime = recipe.runtime or RuntimeSection()
    return Plan(
        name=name,
        file=document.file,
        seed=recipe.seed,
        plugins=tuple(lock_options(line, _options_of(line, everything)) for line in lines),
        phases=tuple(_phase_plan(phase, facts) for phase, facts in phases),
        runtime=ref["runtime"],
        trackers=tuple(each.ref for each in trackers),
        model=ref.get("model"),
        model_card=card,
        engine=ref.get("engine"),
        replicas=recipe.engine.replicas if recipe.engine else 0,
        trainer=ref.get("trainer"),
        transport=ref.get("transport"),
        precision=ref.get("precision"),
        checkpoint_every=recipe.checkpoint.every,
        checkpoint_keep=recipe.checkpoint.keep,
        driver=runtime.driver,
        driver_restarts=runtime.driver_restarts,
        faults=recipe.faults,
        recipe=data,
        sources=sources_of(data, document, everything, source_of_plugins(decision)),
        card=(*_algorithm_card(everything), *evaluation_card(choices), *_driver_card(runtime)),
        arithmetic=arithmetic(phases, run),
        capabilities=_capabilities(everything),
        warnings=_warnings(choices, run, registry),
        verdicts=decision.verdicts,
    )


def _folders(registry: Registry) -> list[Path]:
    """Where the milesfile lies, if there is one."""
    return [Path(plugin.location).parent for plugin in registry.plugins if not plugin.distribution]


def _options_of(line: LockedPlugin, everything: Sequence[Chosen]) -> list[tuple[str, Mapping[str, Any]]]:
    """What the recipe says to the components of one plugin."""
    whose = (line.distribution, line.name)
    return [
        (f"{each.kind}.{each.ref.name}", each.ref.options)
        for each in everything
        if (each.plugin.distribution, each.plugin.name) == whose
    ]


def _phase_plan(phase: PhaseChoice, facts: RecipeFacts) -> PhasePlan:
    ref = {section: chosen.ref for section, chosen in phase.one.items()}
    return PhasePlan(
        name=phase.name,
        steps=phase.steps,
        data=ref["data"],
        generator=ref["generator"],
        rollout=ref["rollout"],
        schedule=ref["schedule"],
        buffer=ref["buffer"],
        staleness=ref.get("staleness"),
        advantage=ref.get("advantage"),
        loss=ref.get("loss"),
        correction=ref.get("correction"),
        rewards=tuple(NamedReward(each.name, each.weight, each.chosen.ref) for each in phase.rewards),
        filters=tuple(each.ref for each in phase.many.get("filters", ())),
        evaluators=tuple(each.ref for each in phase.many.get("evaluate", ())),
        sampling=phase.sampling,
        facts=facts,
        agent=ref.get("agent"),
        matcher=ref.get("matcher"),
        middleware=tuple(each.ref for each in phase.many.get("middleware", ())),
    )


def _algorithm_card(choices: Sequence[Chosen]) -> tuple[tuple[str, str], ...]:
    """What each choice means, in the words of its own options: aspects that their names leave open."""
    lines: dict[tuple[str, str], None] = {}
    for chosen in choices:
        describe = getattr(chosen.options, "card", None)
        if describe is None:
            continue
        told = guarded(chosen.plugin, f"failed to describe {chosen.kind} {chosen.ref.name!r}", partial(_told, describe))
        prefix = f"{chosen.kind} {chosen.ref.name}"
        lines |= {(f"{prefix}: {aspect}", meaning): None for aspect, meaning in told.items()}
    return tuple(lines)


def _driver_card(runtime: RuntimeSection) -> tuple[tuple[str, str], ...]:
    if runtime.driver == "here":
        return ()
    again = f"; when it dies, it is started again, at most {runtime.driver_restarts} times"
    return (("driver", f"in a worker of the runtime{again if runtime.driver_restarts else ''}"),)


def _told(describe: Any) -> dict[str, str]:
    return {str(aspect): str(meaning) for aspect, meaning in describe().items()}


def _capabilities(choices: Sequence[Chosen]) -> tuple[tuple[str, str, tuple[str, ...]], ...]:
    declared = ((each.kind, each.ref.name, tuple(sorted(each.capabilities))) for each in choices)
    return tuple(dict.fromkeys(each for each in declared if each[2]))


def _warnings(phases: Sequence[PhaseChoice], run: Mapping[str, Chosen], registry: Registry) -> tuple[str, ...]:
    enabled = {plugin.distribution for plugin in registry.plugins}
    hidden = [
        f"{plugin.distribution} {plugin.version} at {plugin.location} is hidden by {plugin.shadowed_by}"
        for plugin in registry.index.shadowed
        if plugin.distribution in enabled
    ]
    return tuple(dict.fromkeys([*(each for phase in phases for each in rules.warnings_of(phase, run)), *hidden]))
