"""Which plugins a recipe runs with: what it names, what stronger sources say, and the milesfile beside it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from miles_core.host.activate import activate
from miles_core.host.decide import Decision, decide
from miles_core.host.lock import LockedPlugin, lock_plugin, lock_source
from miles_core.host.names import MILESFILE, clear_name, is_core
from miles_core.host.registry import Registry
from miles_core.host.request import BLOCK, RECIPE, PluginRequest
from miles_core.host.scan import Index, InstalledPlugin
from miles_core.host.verdict import DISABLED
from miles_core.recipe.document import Document
from miles_core.recipe.faults import Faults
from miles_core.recipe.milesfile import find_milesfile, taken_name
from miles_core.recipe.research import search_folders
from miles_core.recipe.resolved import Source
from miles_core.recipe.schema import Recipe


def enable(
    document: Document, recipe: Recipe, index: Index, request: PluginRequest, folders: Sequence[Path], faults: Faults
) -> tuple[Decision, Registry, bool]:
    """The decision, the registry of what it enables, and whether all that was asked for is there. What is wrong is
    added to the faults: a name of the recipe at its place, another source's after them."""
    milesfile = find_milesfile(document, recipe.code)
    if milesfile is not None:
        index = index._replace(plugins=(*index.plugins, milesfile))
    places = [document.place(("plugins", position)).source.where for position in range(len(recipe.plugins))]
    decision = decide(index, request.with_recipe(recipe.plugins, places))
    for refusal in decision.refusals:
        problem = refusal.problem
        if refusal.position < 0:
            faults.add_elsewhere(problem, broken=refusal.broken)
        else:
            where = f" ({problem.where})" if problem.where else ""
            at = ("plugins", refusal.position)
            faults.add(at, problem.what + where, problem.mend, broken=refusal.broken, say_path=False)
    taken = None
    if milesfile is not None and milesfile in decision.enabled:
        search_folders(folders)
        taken = taken_name(milesfile)
        if taken is not None:
            faults.add_plugin([taken])
            others = tuple(plugin for plugin in decision.enabled if plugin != milesfile)
            decision = replace(decision, enabled=others)
    registry, broken = activate(index, decision)
    faults.add_plugin(broken)
    return decision, registry, not (decision.refusals or broken or taken)


def meant(decision: Decision) -> frozenset[str]:
    """The distributions that refused names most likely stand for."""
    return frozenset(distribution for refusal in decision.refusals for distribution in refusal.meant)


def lock_enabled(plugin: InstalledPlugin) -> LockedPlugin:
    """The line of an enabled plugin in the lock; a milesfile is locked like research code, by its content."""
    return lock_plugin(plugin) if plugin.distribution else lock_source(plugin.name, Path(plugin.location))


def written_plugins(decision: Decision, registry: Registry) -> list[str]:
    """`plugins:` of the resolved recipe: exactly those that the run uses, in order, whoever enabled them. A milesfile
    that was left out stays out when the resolved recipe is run again."""
    names = [clear_name(registry.index, plugin) for plugin in decision.enabled if not is_core(plugin)]
    off = any(verdict.plugin is not None and not verdict.plugin.distribution for verdict in decision.off)
    return [*names, *([f"{BLOCK}{MILESFILE}"] if off else [])]


def source_of_plugins(decision: Decision) -> Source | None:
    """Where the resolved list came from, when it is not simply the recipe's own."""
    told = [each.by for each in decision.verdicts if each.by is not None and each.by.where != "always"]
    if all(reason.source == RECIPE for reason in told) and not any(v.status == DISABLED for v in decision.verdicts):
        return None
    return Source("plugins", ", ".join(dict.fromkeys(reason.where for reason in told)))
