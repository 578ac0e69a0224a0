"""Which installed plugins a recipe enables: a pure function of what is installed and what the recipe names.

It runs before anything is imported, and finds every fault of the list at once. The core's own plugin is always
enabled and need not be named.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import miles_core
from miles_core.errors import Problem
from miles_core.host.metadata import normalise
from miles_core.host.scan import Index, InstalledPlugin

CORE_DISTRIBUTION = "miles-core"
CORE_MODULE = "miles_core.components"
NAMING_CONVENTION = "miles-plugin-"


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why one entry of the list cannot be enabled. `position` is its index in the list; `broken` tells a fault of the
    plugin (exit code 3) from one of the request (exit code 2); `meant` are the distributions that the entry most
    likely stands for, so that what they provide is not reported missing a second time."""

    position: int
    problem: Problem
    broken: bool = False
    meant: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """`enabled` in the order of the list, the core first; whatever was refused is not among them."""

    enabled: tuple[InstalledPlugin, ...]
    refusals: tuple[Refusal, ...] = ()


def decide(index: Index, names: Sequence[str], core_version: str = miles_core.__version__) -> Decision:
    """What the allow-list `names` enables. A name is an entry point's, a distribution's, or `distribution:name`."""
    enabled: dict[InstalledPlugin, None] = {core_plugin(index): None}
    refusals = []
    for position, name in enumerate(names):
        candidates = matching(index.plugins, name)
        meant = tuple(plugin.distribution for plugin in candidates)
        if not candidates:
            refusals.append(_unknown(index, position, name))
        elif len(candidates) > 1:
            refusals.append(Refusal(position, _ambiguous(name, candidates), broken=True, meant=meant))
        elif unmet := _unmet_requirement(candidates[0], core_version):
            refusals.append(Refusal(position, unmet, broken=True, meant=meant))
        else:
            enabled[candidates[0]] = None
    return Decision(tuple(enabled), tuple(refusals))


def core_plugin(index: Index) -> InstalledPlugin:
    """The core's own plugin, also when its metadata cannot be found (a source checkout that was not installed)."""
    for plugin in index.plugins:
        if plugin.distribution == CORE_DISTRIBUTION and plugin.name == "core":
            return plugin
    folder = Path(miles_core.__file__).parent
    return InstalledPlugin(
        name="core",
        distribution=CORE_DISTRIBUTION,
        version=miles_core.__version__,
        module=CORE_MODULE,
        location=str(folder),
        editable=True,
    )


def matching(plugins: Iterable[InstalledPlugin], name: str) -> list[InstalledPlugin]:
    """The plugins that a person may mean by `name`. An exact entry-point name comes before a distribution's."""
    left, colon, right = name.partition(":")
    if colon:
        wanted = (normalise(left), normalise(right))
        return [p for p in plugins if (p.distribution, normalise(p.name)) == wanted]
    wanted_name = normalise(name)
    by_name = [p for p in plugins if normalise(p.name) == wanted_name]
    return by_name or [p for p in plugins if p.distribution == wanted_name]


def _unknown(index: Index, position: int, name: str) -> Refusal:
    shadowed = matching(index.shadowed, name)
    if shadowed:
        plugin = shadowed[0]
        problem = Problem(
            f"plugin {name!r} is installed ({plugin.distribution} {plugin.version}) but hidden by "
            f"{plugin.shadowed_by}, which comes earlier on the import path",
            mend="remove or refresh the earlier one",
        )
        return Refusal(position, problem, meant=(plugin.distribution,))
    short = normalise(name.partition(":")[0]).removeprefix(NAMING_CONVENTION)
    nearest = difflib.get_close_matches(short, sorted({plugin.name for plugin in index.plugins}), n=1)
    package = short if short.startswith("miles-") else NAMING_CONVENTION + short
    install = f"install it: pip install {package}"
    listed = ", ".join(sorted({plugin.name for plugin in index.plugins} - {"core"})) or "none"
    problem = Problem(
        f"plugin {name!r} is not installed; installed: {listed}",
        mend=f"did you mean {nearest[0]!r}? Otherwise {install}" if nearest else install,
    )
    return Refusal(position, problem, meant=tuple(p.distribution for p in index.plugins if p.name in nearest))


def _ambiguous(name: str, candidates: Sequence[InstalledPlugin]) -> Problem:
    choices = [f"{p.distribution} {p.version} ({p.location})" for p in candidates]
    names = " or ".join(f"{p.distribution}:{p.name}" for p in candidates)
    return Problem(f"plugin {name!r} is provided by {' and by '.join(choices)}", mend=f"say which: {names}")


def _unmet_requirement(plugin: InstalledPlugin, core_version: str) -> Problem | None:
    """A `Requires-Dist: miles-core…` that the running core does not satisfy."""
    stated = [line for line in plugin.requires if normalise(line).startswith(CORE_DISTRIBUTION)]
    if not stated:
        return None
    from packaging.requirements import InvalidRequirement, Requirement  # only when a third party's plugin asks for it

    for line in stated:
        try:
            requirement = Requirement(line)
        except InvalidRequirement as error:
            return Problem(
                f"plugin {plugin.title} has an unreadable requirement {line!r}: {error}",
                where=plugin.location,
                mend=f"reinstall {plugin.distribution}",
            )
        if normalise(requirement.name) != CORE_DISTRIBUTION or (
            requirement.marker and not requirement.marker.evaluate()
        ):
            continue
        if not requirement.specifier.contains(core_version, prereleases=True):
            return Problem(
                f"plugin {plugin.title} needs {CORE_DISTRIBUTION}{requirement.specifier}, this is {core_version}",
                where=plugin.location,
                mend=f"pip install --upgrade {CORE_DISTRIBUTION} {plugin.distribution}",
            )
    return None
