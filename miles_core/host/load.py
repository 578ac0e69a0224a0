"""Guarded loading: whatever an enabled plugin does when it is imported, the host lives on and can name it.

stevedore's manager loads by name, with our index underneath instead of its own discovery and cache. Its error handling
lets `SystemExit` and `AssertionError` through, so the guard sits in the entry point's own `load`.
"""

from __future__ import annotations

import contextlib
import difflib
import importlib
import re
import sys
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from stevedore.named import NamedExtensionManager

from miles_core.contracts.blame import place_of
from miles_core.contracts.component import Component
from miles_core.errors import PluginError, Problem
from miles_core.host.damage import explain
from miles_core.host.metadata import normalise
from miles_core.host.scan import PLUGINS_GROUP, InstalledPlugin
from miles_core.host.source import source_folder

if TYPE_CHECKING:
    _Manager = NamedExtensionManager[Any]
else:
    _Manager = NamedExtensionManager  # generic in newer releases only

Result = TypeVar("Result")

_WORDS = tuple(field.name for field in fields(Component) if field.init)
_COMPONENT_CALL = re.compile(r"Component\.__init__\(\) ")
_UNKNOWN_WORD = re.compile(r"unexpected keyword argument '(\w+)'")


@dataclass(frozen=True, slots=True)
class LoadedPlugin:
    """A plugin whose module or object was imported."""

    installed: InstalledPlugin
    object: Any


@dataclass(frozen=True, slots=True)
class _IndexEntry:
    """What stevedore takes for an `importlib.metadata.EntryPoint`."""

    plugin: InstalledPlugin
    group: str = PLUGINS_GROUP

    @property
    def name(self) -> str:
        return f"{self.plugin.distribution}:{self.plugin.name}"

    @property
    def value(self) -> str:
        return self.plugin.module

    def load(self) -> Any:
        return guarded(self.plugin, "failed to load", lambda: _import(self.plugin.module))


class _IndexManager(_Manager):
    """stevedore's manager over entries that our scan found and our decision enabled."""

    def __init__(self, entries: Sequence[_IndexEntry], failed: Callable[[Any, Any, BaseException], None]) -> None:
        self._entries = entries
        super().__init__(
            PLUGINS_GROUP,
            names=[entry.name for entry in entries],
            on_load_failure_callback=failed,
            on_missing_entrypoints_callback=None,
        )

    def list_entry_points(self) -> list[Any]:
        return list(self._entries)


def load(plugins: Sequence[InstalledPlugin]) -> tuple[tuple[LoadedPlugin, ...], tuple[Problem, ...]]:
    """Import each plugin, in order. Those that fail become problems; the others are loaded all the same."""
    problems: list[Problem] = []

    def failed(_manager: Any, entry: Any, error: BaseException) -> None:
        if isinstance(error, PluginError):
            problems.extend(error.problems)
        else:
            problems.append(_problem(entry.plugin, "failed to load", error))

    manager = _IndexManager([_IndexEntry(plugin) for plugin in plugins], failed)
    by_name = {entry.name: entry.plugin for entry in manager.list_entry_points()}
    loaded = tuple(LoadedPlugin(by_name[extension.name], extension.plugin) for extension in manager.extensions)
    return loaded, tuple(problems)


def guarded(
    plugin: InstalledPlugin,
    doing: str,
    call: Callable[[], Result],
    passing: tuple[type[BaseException], ...] = (),
) -> Result:
    """Call into a plugin. Whatever it raises, `SystemExit` included, becomes a PluginError that names it; only the
    person's Ctrl-C and what the caller lists as `passing` go through. What it prints goes to stderr: stdout belongs
    to the command."""
    try:
        with contextlib.redirect_stdout(sys.stderr):
            return call()
    except KeyboardInterrupt:
        print(f"interrupted while plugin {plugin.title} was at work", file=sys.stderr)
        raise
    except passing:
        raise
    except BaseException as error:
        raise PluginError([_problem(plugin, doing, error)]) from error


def _import(value: str) -> Any:
    module_name, _, attribute = value.partition(":")
    module = importlib.import_module(module_name)
    found: Any = module
    for name in filter(None, attribute.split(".")):
        if not hasattr(found, name):
            near = difflib.get_close_matches(name, dir(found), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise AttributeError(f"no {name!r} in {_file_of(module)}{hint}", name=name, obj=found)
        found = getattr(found, name)
    return found


def _file_of(module: ModuleType) -> str:
    return getattr(module, "__file__", None) or module.__name__


def _problem(plugin: InstalledPlugin, doing: str, error: BaseException) -> Problem:
    foreign = explain(error)
    if foreign is not None:
        return Problem(f"plugin {plugin.title} {doing}: {foreign.what}", foreign.where, foreign.mend)
    text = " ".join(str(error).split())
    place = place_of(error)
    return Problem(
        f"plugin {plugin.title} {doing}: {type(error).__name__}{': ' + text if text else ''}"
        f"{f' ({place})' if place else ''}",
        where=origin(plugin),
        mend=_mend(plugin, error, place),
        trace="".join(traceback.format_exception(error)),
    )


def origin(plugin: InstalledPlugin) -> str:
    """Where the plugin comes from: its entry point, or its file when it has no distribution."""
    if not plugin.distribution:
        return plugin.location
    return f"entry point {PLUGINS_GROUP}:{plugin.name} = {plugin.module} of {plugin.distribution} {plugin.version}"


def _right_module(plugin: InstalledPlugin, missing: str) -> str:
    """What to do about an entry point whose own module is not there: the author's mistake where the package or the
    source folder is, else a broken installation."""
    above, _, last = missing.rpartition(".")
    spec = sys.modules.get(above)
    source = source_folder(plugin)
    folders = [Path(each) for each in getattr(spec, "__path__", ())] if above else [Path(plugin.location).parent]
    folders += [Path(source), Path(source, "src")] if source and not above else []
    names = [each.name.removesuffix(".py") for folder in folders if folder.is_dir() for each in folder.iterdir()]
    there = [name for name in names if name.isidentifier()]
    near = difflib.get_close_matches(last, there, n=1, cutoff=0.75)
    right = ".".join(filter(None, [above, *near]))
    rest = plugin.module.removeprefix(missing)
    wanted = f"`{plugin.name} = {right}{rest}`" if near else f"`{plugin.name} = …` to a module that is there"
    if near or above or plugin.editable:
        return f'correct the entry point in pyproject.toml, group "{PLUGINS_GROUP}", to {wanted}, then install it again'
    return f"reinstall {plugin.distribution}"


def _mend(plugin: InstalledPlugin, error: BaseException, place: str) -> str:
    call = _COMPONENT_CALL.match(str(error)) if isinstance(error, TypeError) else None
    if call is not None:
        unknown = _UNKNOWN_WORD.search(str(error))
        near = difflib.get_close_matches(unknown.group(1), _WORDS, n=1) if unknown else ()
        hint = f"did you mean {near[0]!r}? " if near else ""
        return f'{hint}Write Component("name", factory="module:attr"); it also takes {", ".join(_WORDS[2:])}'
    without = f", or run with --plugin no:{plugin.name}" if plugin.distribution != "miles-core" else ""
    if isinstance(error, ModuleNotFoundError) and error.name:
        top = error.name.partition(".")[0]
        if top != plugin.module.partition(".")[0].partition(":")[0]:
            return f"pip install {normalise(top)}{without}"
        return f"{_right_module(plugin, error.name)}{without}"
    if plugin.editable or not plugin.distribution:
        return f"repair {place or plugin.location}{without}"
    return f"repair or reinstall {plugin.distribution}{without}"
