"""What is asked of the host: every word about a plugin, with who said it.

Sources, strongest first:

    command line   `--plugin X` enables, `--plugin no:X` blocks, `--no-plugins` blocks all but the core's
    environment    MILES_PLUGINS=X,no:Y; a plain name in it (or none at all) leaves out what weaker sources enable
    project        miles.toml in the working folder: `[plugins] enable = [...]`, `disable = [...]`
    recipe         `plugins: [X, no:Y]`; a milesfile.py beside it is enabled by being there

A name is an entry point's, a distribution's, or `distribution:name`. `decide` settles who wins.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from miles_core.errors import Problem, RequestError
from miles_core.host.allowed import AllowList, read_allowed
from miles_core.host.project import FILE as PROJECT_FILE
from miles_core.host.project import read_project

COMMAND_LINE, ENVIRONMENT, PROJECT, RECIPE = "command line", "environment", "project", "recipe"
LEVELS = (COMMAND_LINE, ENVIRONMENT, PROJECT, RECIPE)
"""The sources, strongest first."""

VARIABLE = "MILES_PLUGINS"
NO_PLUGINS = "--no-plugins"
BLOCK = "no:"
ENABLES, BLOCKS, LEAVES_OUT = "enables", "blocks", "leaves out"


class Wish(NamedTuple):
    """What one source says about one plugin.

    level     one of LEVELS
    where     how messages name the place: `--plugin no:x`, `MILES_PLUGINS=x`, `miles.toml:3`, `recipe.yaml:4`
    name      as written, without `no:`
    says      ENABLES, BLOCKS, or LEAVES_OUT (a stronger source that replaces weaker ones does not name it)
    position  index in the recipe's list, -1 elsewhere
    """

    level: str
    where: str
    name: str
    says: str
    position: int = -1


@dataclass(frozen=True, slots=True)
class PluginRequest:
    """All that is asked, ready for `decide`.

    wishes     weakest source first, each source in its own order: the order in which plugins are enabled
    replacing  the place of an environment that leaves out what weaker sources enable; "" when it does not
    core_only  whether --no-plugins was given
    beside     whether a milesfile.py that is there is enabled unasked
    allowed    the allow-list of this machine, if it has one
    """

    wishes: tuple[Wish, ...] = ()
    replacing: str = ""
    core_only: bool = False
    beside: bool = True
    allowed: AllowList | None = None

    def with_recipe(self, names: Sequence[str], places: Sequence[str]) -> PluginRequest:
        """The same with a recipe's `plugins:` below it; `places` says where each name stands."""
        recipe = [_wish(RECIPE, place, name, i) for i, (name, place) in enumerate(zip(names, places, strict=True))]
        return replace(self, wishes=(*recipe, *self.wishes))


def read_request(
    selected: Sequence[str],
    *,
    no_plugins: bool,
    environ: Mapping[str, str],
    folder: Path,
) -> PluginRequest:
    """What command line (the values of `--plugin`), environment and the project file in `folder` say.

    Raises RequestError with everything that is not understood. With `no_plugins` the project file is not read: the
    escape hatch must work when that is broken too.
    """
    problems = _misspelt(selected, no_plugins)
    project: list[Wish] = []
    if not no_plugins:
        try:
            project = [
                Wish(PROJECT, entry.where, entry.name, ENABLES if entry.enables else BLOCKS)
                for entry in read_project(folder / PROJECT_FILE)
            ]
        except RequestError as error:
            problems += error.problems
    environment, replacing = _environment(environ.get(VARIABLE), problems)
    try:
        allowed = read_allowed(environ)
    except RequestError as error:
        problems += error.problems
        allowed = None
    if problems:
        raise RequestError(problems)
    command_line = [_wish(COMMAND_LINE, f"--plugin {entry}", entry) for entry in selected]
    return PluginRequest((*project, *environment, *command_line), replacing, no_plugins, allowed=allowed)


def recipe_alone(environ: Mapping[str, str], *, beside: bool = True) -> PluginRequest:
    """No word about plugins but the recipe's own; only the machine's allow-list holds. Without `beside` not even a
    milesfile is enabled unasked: what a run recorded is what it goes on with."""
    return PluginRequest(beside=beside, allowed=read_allowed(environ))


def exactly(names: Sequence[str], environ: Mapping[str, str]) -> PluginRequest:
    """These names and nothing else, whatever environment and project say; only the machine's allow-list holds."""
    return recipe_alone(environ, beside=False).with_recipe(names, [""] * len(names))


def _misspelt(selected: Sequence[str], no_plugins: bool) -> list[Problem]:
    problems = [
        Problem("names no plugin", f"--plugin {entry!r}", "write --plugin NAME or --plugin no:NAME")
        for entry in selected
        if not entry.removeprefix(BLOCK).strip()
    ]
    enabling = [entry for entry in selected if not entry.startswith(BLOCK)]
    if no_plugins and enabling:
        what = f"--plugin {enabling[0]} and {NO_PLUGINS} contradict each other"
        mend = f"leave out {NO_PLUGINS}; to enable nothing but {enabling[0]}, set {VARIABLE}={enabling[0]}"
        problems.append(Problem(what, mend=mend))
    return problems


def _environment(value: str | None, problems: list[Problem]) -> tuple[list[Wish], str]:
    """The wishes of MILES_PLUGINS, and its place when it replaces what weaker sources enable."""
    if value is None:
        return [], ""
    where = f"{VARIABLE}={value.strip()}"
    entries = [entry.strip() for entry in value.split(",") if entry.strip()]
    if any(entry == BLOCK for entry in entries):
        problems.append(Problem(f"{BLOCK!r} names no plugin", where, f"write {BLOCK}NAME"))
    wishes = [_wish(ENVIRONMENT, where, entry) for entry in entries]
    replaces = not wishes or any(wish.says == ENABLES for wish in wishes)
    return wishes, where if replaces else ""


def _wish(level: str, where: str, entry: str, position: int = -1) -> Wish:
    blocks = entry.startswith(BLOCK)
    return Wish(level, where, entry.removeprefix(BLOCK).strip(), BLOCKS if blocks else ENABLES, position)
