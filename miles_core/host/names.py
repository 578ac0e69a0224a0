"""Names of plugins as people write them: whom a name means, and what to say when that is nobody or several."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from pathlib import Path

import miles_core
from miles_core.errors import Problem
from miles_core.host.metadata import normalise
from miles_core.host.scan import Index, InstalledPlugin

CORE_DISTRIBUTION = "miles-core"
CORE_MODULE = "miles_core.components"
NAMING_CONVENTION = "miles-plugin-"
MILESFILE = "milesfile"
"""The plugin that a `milesfile.py` beside a recipe is."""


def core_plugin(index: Index) -> InstalledPlugin:
    """The core's own plugin, also when its metadata cannot be found (a source checkout that was not installed)."""
    for plugin in index.plugins:
        if is_core(plugin):
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


def is_core(plugin: InstalledPlugin) -> bool:
    """Whether it is the core's own plugin, which is always enabled."""
    return plugin.distribution == CORE_DISTRIBUTION and plugin.name == "core"


def matching(plugins: Iterable[InstalledPlugin], name: str) -> list[InstalledPlugin]:
    """The plugins that a person may mean by `name`: an entry point's name, a distribution's, or `distribution:name`,
    in any spelling that PEP 503 takes for the same. An exact entry-point name comes before a distribution's."""
    left, colon, right = name.partition(":")
    if colon:
        wanted = (normalise(left), normalise(right))
        return [p for p in plugins if (p.distribution, normalise(p.name)) == wanted]
    wanted_name = normalise(name)
    plugins = list(plugins)
    by_name = [p for p in plugins if normalise(p.name) == wanted_name]
    return by_name or [p for p in plugins if p.distribution == wanted_name]


def short_name(name: str) -> str:
    """What unknown names are compared by: `Miles_Plugin_X`, `miles-plugin-x:x` and `x` are one."""
    return normalise(name.partition(":")[0]).removeprefix(NAMING_CONVENTION)


def clear_name(index: Index, plugin: InstalledPlugin) -> str:
    """The shortest name that means this plugin alone."""
    alone = matching(index.plugins, plugin.name) in ([plugin], [])
    return plugin.name if alone or not plugin.distribution else f"{plugin.distribution}:{plugin.name}"


def unknown(index: Index, name: str, where: str = "") -> Problem:
    """What to say of a name that matches no installed plugin."""
    shadowed = matching(index.shadowed, name)
    if shadowed:
        plugin = shadowed[0]
        return Problem(
            f"plugin {name!r} is installed ({plugin.distribution} {plugin.version}) but hidden by "
            f"{plugin.shadowed_by}, which comes earlier on the import path",
            where,
            mend="remove or refresh the earlier one",
        )
    if normalise(name) == MILESFILE:
        return Problem(
            "there is no milesfile.py beside the recipe or in its `code:` folders",
            where,
            "write one there, and `miles plan RECIPE` checks it; `miles plugins check` is for installed plugins",
        )
    short = short_name(name)
    without = _without_entry_point(index, name, where)
    if without is not None:
        return without
    near = nearest(index, name)
    package = short if short.startswith("miles-") else NAMING_CONVENTION + short
    install = f"install it: pip install {package}"
    listed = ", ".join(sorted({plugin.name for plugin in index.plugins if plugin.distribution} - {"core"})) or "none"
    return Problem(
        f"plugin {name!r} is not installed; installed: {listed}",
        where,
        mend=f"did you mean {near[0].name!r}? Otherwise {install}" if near else install,
    )


def _without_entry_point(index: Index, name: str, where: str) -> Problem | None:
    """What to say of a name whose distribution is installed, but is no plugin by its metadata."""
    wanted = (normalise(name.partition(":")[0]), NAMING_CONVENTION + short_name(name))
    plugins = {plugin.distribution for plugin in index.plugins}
    found = next((each for each in wanted if each in index.versions and each not in plugins), None)
    if found is None:
        return None
    from miles_core.host.entry_groups import no_entry_point

    what, mend = no_entry_point(found, short_name(name))
    return Problem(what, where, mend)


def nearest(index: Index, name: str) -> list[InstalledPlugin]:
    """The plugins (of one name) that an unknown or hidden name most likely means; none when nothing is like it."""
    hidden = matching(index.shadowed, name)
    if hidden:
        return hidden[:1]
    near = difflib.get_close_matches(short_name(name), sorted({plugin.name for plugin in index.plugins}), n=1)
    return [plugin for plugin in index.plugins if plugin.name in near]


def ambiguous(name: str, candidates: Sequence[InstalledPlugin], where: str = "") -> Problem:
    """What to say of a name that several plugins answer to."""
    choices = [f"{p.distribution} {p.version} ({p.location})" for p in candidates]
    names = " or ".join(f"{p.distribution}:{p.name}" for p in candidates)
    return Problem(f"plugin {name!r} is provided by {' and by '.join(choices)}", where, mend=f"say which: {names}")
