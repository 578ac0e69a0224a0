"""Hook implementations of a plugin, checked in plain words before pluggy takes them.

pluggy is silent about a misspelt hook until asked, about a plugin without any hook, and about marked objects that it
cannot call; a person who writes a plugin should hear of each, with the file and the nearest right name.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping
from types import FunctionType, MethodType
from typing import Any, NoReturn

import pluggy

from miles_core import hookspecs
from miles_core.errors import PluginError, Problem
from miles_core.hookspecs import REMOVED_HOOKS, Deprecated
from miles_core.host.load import LoadedPlugin, origin
from miles_core.host.members import (
    foreign_mark_of,
    function_of,
    is_spec,
    lines_of,
    mark_of,
    marked_above,
    members,
    place_of_code,
)
from miles_core.host.scan import InstalledPlugin
from miles_core.host.specs import PREFIX, HookSpec, prefix_of, read_specs

_CLOSE = 0.85
"""How alike a name must be to a hook's to be taken for a misspelt one although nothing marks it."""

Fault = tuple[str, str]
"""What is wrong, and how to mend it."""


class HookManager(pluggy.PluginManager):
    """pluggy's manager with our specifications, that no longer changes once it is frozen.

    Only names with our prefix are looked at: registering a module with a thousand names is then thirty times faster.
    `removed` are hooks of earlier versions, `absent` the prefixes of installed plugins that are not enabled (with their
    names), `failed` those of plugins that could not be loaded.
    """

    def __init__(self, *more: Any, removed: Mapping[str, Deprecated] = REMOVED_HOOKS) -> None:
        super().__init__("miles")
        self.specs: dict[str, HookSpec] = {}
        self.removed = dict(removed)
        self.absent: dict[str, str] = {}
        self.failed: set[str] = set()
        self._frozen = False
        for source in (hookspecs, *more):
            self.add_hookspecs(source)

    def add_hookspecs(self, module_or_class: Any, owner: str = "") -> None:
        """Add the marked functions of a module or an object as hooks."""
        self._refuse_when_frozen("add hooks")
        super().add_hookspecs(module_or_class)
        self.specs |= {spec.name: spec for spec in read_specs(module_or_class, owner)}

    def register(self, plugin: Any, name: str | None = None) -> str | None:
        self._refuse_when_frozen("register a plugin")
        return super().register(plugin, name)

    def unregister(self, plugin: Any = None, name: str | None = None) -> Any:
        self._refuse_when_frozen("take a plugin out")
        return super().unregister(plugin, name)

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        return super().parse_hookimpl_opts(plugin, name) if name.startswith(PREFIX) else None

    def freeze(self) -> None:
        """The set is complete: from here on every run, worker and lock can rely on it."""
        self._frozen = True

    def _refuse_when_frozen(self, what: str) -> None:
        if self._frozen:
            raise PluginError(
                f"the plugin set is fixed after start-up: nobody can {what} now",
                mend="name the plugin in the recipe's plugins:, and let its entry point provide all that it has",
            )

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            "hooks do not travel to another process: send the resolved plugin set, "
            "or the ComponentRefs of what is built there"
        )


def check_hooks(plugin: LoadedPlugin, manager: HookManager) -> list[Problem]:
    """What is wrong with the hook implementations of a plugin; nothing when pluggy may register it."""
    subject = plugin.object
    title = plugin.installed.title
    where = origin(plugin.installed)
    if inspect.isclass(subject):
        return [
            Problem(
                f"plugin {title} names the class {subject.__qualname__}, expected a module or an instance",
                where,
                f"let the entry point name a module, or an instance of {subject.__qualname__}",
            )
        ]
    problems = []
    count = 0
    for name, value in members(subject).items():
        if mark_of(value) is None:
            fault = _unmarked_fault(subject, name, value, manager)
        else:
            count += 1
            fault = _marked_fault(subject, name, value, manager) or _dropped(subject, name)
        if fault:
            problems.append(Problem(f"plugin {title}: {fault[0]}", place_of_code(value, where), fault[1]))
    if not count and not problems:
        mend = "mark its functions with @miles_core.hookimpl, e.g. one named miles_rewards"
        problems.append(Problem(f"plugin {title} implements no hook", where, mend))
    return problems


def sound_implementation(plugin: LoadedPlugin, name: str, manager: HookManager) -> Callable[[], Any] | None:
    """A plugin's implementation of one hook, when there is one and nothing is wrong with it."""
    subject = plugin.object
    value = None if inspect.isclass(subject) else members(subject).get(name)
    if mark_of(value) is None or _marked_fault(subject, name, value, manager):
        return None
    found: Callable[[], Any] = getattr(subject, name)
    return found


def passed_over(plugin: LoadedPlugin, manager: HookManager) -> list[Problem]:
    """Marked functions of a registered plugin that pluggy did not take after all."""
    taken = {caller.name for caller in manager.get_hookcallers(plugin.object) or ()}
    return [
        Problem(
            f"plugin {plugin.installed.title}: {name} is marked, but pluggy {pluggy.__version__} does not take it",
            place_of_code(value, plugin.installed.module),
            "write it as a plain function of the module, or a plain method",
        )
        for name, value in members(plugin.object).items()
        if mark_of(value) is not None and name not in taken
    ]


def deprecations(plugin: LoadedPlugin, manager: HookManager) -> list[tuple[str, Any]]:
    """Sentences about deprecated hooks and arguments that a plugin uses, each with the function that does."""
    found = []
    for name, value in members(plugin.object).items():
        spec = manager.specs.get(name)
        if spec is None or mark_of(value) is None:
            continue
        if spec.facts.deprecated is not None:
            found.append((f"{name} {spec.facts.deprecated}", function_of(value)))
        asked = inspect.signature(getattr(plugin.object, name)).parameters
        for argument, deprecated in spec.facts.arguments.items():
            if argument in asked:
                found.append((f"argument {argument} of {name} {deprecated}", function_of(value)))
    return found


def _unmarked_fault(subject: Any, name: str, value: Any, manager: HookManager) -> Fault | None:
    """Something that looks like a hook but that nobody would call."""
    function = function_of(value)
    if not (name.startswith(PREFIX) and callable(function)):
        return None
    if name not in manager.specs and name not in manager.removed:
        near = difflib.get_close_matches(name, manager.specs, n=1, cutoff=_CLOSE)
        here = getattr(function, "__module__", None) == getattr(subject, "__name__", type(subject).__module__)
        if near and here and inspect.isroutine(function) and not is_spec(value):
            mend = f"did you mean {near[0]}? Write @miles_core.hookimpl above it"
            return f"{name} looks like a hook but is not marked", mend
        return None
    if is_spec(value):
        own = getattr(function, "__module__", "")
        specified = name in manager.specs and own.startswith(hookspecs.__name__)
        if specified or manager.specs[name].owner:
            return None  # the specification itself, imported or written here
        return f"{name} is marked as a specification", "write @miles_core.hookimpl instead of hookspec"
    if project := foreign_mark_of(value):
        return f"{name} is marked for project {project!r}", "mark it with @miles_core.hookimpl"
    above = marked_above(subject, name)
    if above is not None:
        what = f"{name} overrides the marked one of {above.__qualname__} but is not marked itself"
        return what, "write @miles_core.hookimpl above it"
    if isinstance(value, property):
        return f"{name} is a property, which is never called", "write a method, marked with @miles_core.hookimpl"
    return f"{name} looks like a hook but is not marked", "write @miles_core.hookimpl above it"


def _marked_fault(subject: Any, name: str, value: Any, manager: HookManager) -> Fault | None:
    """What is wrong with one marked function."""
    options = mark_of(value) or {}
    if not name.startswith(PREFIX) or options.get("specname"):
        meant = f"{PREFIX}{name}" if f"{PREFIX}{name}" in manager.specs else f"{PREFIX}…"
        return f"{name} is marked as a hook", f"name the function like the hook itself, {meant}, without specname"
    function = function_of(value)
    if not inspect.isfunction(function) or not isinstance(value, _CALLED):
        return f"{name} is a {type(value).__name__}, which is never called", "mark the plain function, outermost"
    if name not in manager.specs:
        return _unknown_fault(name, bool(options.get("optionalhook")), manager)
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return f"{name} is a coroutine, hooks are plain functions", "write def instead of async def"
    if options.get("wrapper") or options.get("hookwrapper"):
        return f"{name} is a hook wrapper, which Miles does not call", "implement the hook itself"
    if manager.specs[name].is_event and inspect.isgeneratorfunction(function):
        return f"{name} is a generator, which nobody runs", "write it without yield"
    return _argument_fault(name, getattr(subject, name), manager.specs[name].arguments)


_CALLED = (FunctionType, MethodType, staticmethod, classmethod)
"""What pluggy calls: functions, static, class and bound methods."""


def _unknown_fault(name: str, optional: bool, manager: HookManager) -> Fault | None:
    if name in manager.removed:
        gone = manager.removed[name]
        return f"hook {name} was removed in hook API {gone.removed_in}", gone.replacement
    if any(name.startswith(prefix) for prefix in manager.failed):
        return None  # its owner's problems are already told
    near = difflib.get_close_matches(name, manager.specs, n=1)
    owner = next((plugin for prefix, plugin in manager.absent.items() if name.startswith(prefix)), "")
    close = bool(difflib.get_close_matches(name, manager.specs, n=1, cutoff=_CLOSE))
    if optional and not close:
        return None
    if owner and not close:
        mend = f'add "{owner}" to plugins:, or mark it @hookimpl(optionalhook=True)'
        return f"hook {name} belongs to plugin {owner}, which is not enabled", mend
    known = "docs/hooks.md lists every hook; one of a plugin that may be absent is marked @hookimpl(optionalhook=True)"
    return f"there is no hook {name}", f"did you mean {near[0]}?" if near else known


def _argument_fault(name: str, function: Any, accepted: tuple[str, ...]) -> Fault | None:
    says = f"accepted: {', '.join(accepted) or 'none'}"
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
            return f"{name} has the argument {parameter}, expected plain named ones", says
        if parameter.default is not parameter.empty:
            return f"{name} gives {parameter.name} a default, which is never used", f"write {parameter.name} alone"
        if parameter.name not in accepted:
            near = difflib.get_close_matches(parameter.name, accepted, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            return f"{name} has no argument {parameter.name!r}", says + hint
    return None


def _dropped(subject: Any, name: str) -> Fault | None:
    """An implementation that Python itself dropped, because another of the same name follows."""
    lines = lines_of(subject, name)
    if len(lines) < 2:
        return None
    first = ", ".join(map(str, lines[:-1]))
    return f"{name} is defined again; the one of line {first} is never called", "make one of them, or rename it"


def note_absent(
    manager: HookManager, installed: tuple[InstalledPlugin, ...], enabled: tuple[InstalledPlugin, ...]
) -> None:
    """Remember whose hooks an implementation may be written for although the owner is not enabled."""
    manager.absent |= {prefix_of(plugin): plugin.name for plugin in installed if plugin not in enabled}
