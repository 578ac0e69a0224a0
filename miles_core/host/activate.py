"""From a decision to a registry: import, check, register, collect; whoever fails is left out whole and named."""

from __future__ import annotations

import inspect
import time
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from miles_core.contracts.capabilities import unknown_capabilities
from miles_core.contracts.component import Component
from miles_core.contracts.declaration import is_path
from miles_core.errors import MilesDeprecationWarning, PluginError, Problem, RequestError
from miles_core.hookspecs import HOOK_OF_KIND
from miles_core.host.call_trace import HookCall
from miles_core.host.decide import Decision, decide
from miles_core.host.events import Listener
from miles_core.host.hooks import (
    HookManager,
    check_hooks,
    deprecations,
    note_absent,
    passed_over,
    sound_implementation,
)
from miles_core.host.load import LoadedPlugin, guarded, load, origin
from miles_core.host.members import place_of_code
from miles_core.host.registry import Registered, Registry
from miles_core.host.scan import Index, InstalledPlugin, scan
from miles_core.host.specs import OWN_HOOKS, PREFIX, check_own_specs, prefix_of


def activate(
    index: Index, decision: Decision, manager: HookManager | None = None
) -> tuple[Registry, tuple[Problem, ...]]:
    """Import what was enabled and collect what it registers. A plugin that fails any part of this is left out whole,
    with its problems; the others are there. `manager` is for tests: a fresh one with other hooks than the core's."""
    loaded, problems = load(decision.enabled)
    work = _Activation(HookManager() if manager is None else manager)
    note_absent(work.manager, index.plugins, decision.enabled)
    work.manager.failed |= {prefix_of(plugin) for plugin in decision.enabled} - {
        prefix_of(plugin.installed) for plugin in loaded
    }
    for plugin in loaded:
        work.attempt(plugin, work.add_own_hooks)
    for plugin in loaded:
        work.attempt(plugin, work.register)
    healthy = [plugin for plugin in loaded if not work.faults.get(plugin.installed)]
    work.manager.freeze()
    working = [plugin.installed for plugin in healthy]
    failed = [*(plugin for plugin in decision.enabled if plugin not in working), *decision.refused]
    registry = Registry(
        index,
        working,
        [each for each in work.components if each.plugin in working],
        _listeners(work.manager, healthy),
        failed,
        decision.off,
        events={_event(spec.name): spec.arguments for spec in work.manager.specs.values() if spec.is_event},
        calls=work.calls,
    )
    return registry, (*problems, *(fault for plugin in loaded for fault in work.faults.get(plugin.installed, ())))


def open_registry(names: Sequence[str] | None = None, index: Index | None = None) -> Registry:
    """The registry of the named plugins (None: of every installed one), for commands that have no recipe.

    Raises RequestError or PluginError with every problem at once; with None, plugins that fail are left out instead
    and stand in `failed`, so that one broken package does not end a listing.
    """
    index = scan() if index is None else index
    asked = [f"{plugin.distribution}:{plugin.name}" for plugin in index.plugins] if names is None else names
    decision = decide(index, asked)
    registry, faults = activate(index, decision)
    problems = [refusal.problem for refusal in decision.refusals] + list(faults)
    if names is not None and problems:
        bad_request = any(not refusal.broken for refusal in decision.refusals)
        raise (RequestError if bad_request else PluginError)(problems)
    return registry


class _Activation:
    """What became of each plugin so far."""

    def __init__(self, manager: HookManager) -> None:
        self.manager = manager
        self.faults: dict[InstalledPlugin, list[Problem]] = {}
        self.components: list[Registered] = []
        self.calls: list[HookCall] = []
        self._registered: list[LoadedPlugin] = []

    def attempt(self, plugin: LoadedPlugin, part: Callable[[LoadedPlugin], Iterable[Problem]]) -> None:
        """Do one part of the work for a plugin. What it raises, and what it returns, are the plugin's faults."""
        faults = self.faults.setdefault(plugin.installed, [])
        found: Iterable[Problem]
        try:
            work = partial(_listed, part, plugin)
            found = guarded(plugin.installed, "failed to register", work, passing=(PluginError,))
        except PluginError as error:
            found = error.problems
        faults += [fault for fault in found if fault not in faults]
        if faults:
            self.manager.failed.add(prefix_of(plugin.installed))

    def add_own_hooks(self, plugin: LoadedPlugin) -> list[Problem]:
        """The hooks that a plugin brings: before any implementation is checked, since it may be one of these."""
        function = sound_implementation(plugin, OWN_HOOKS, self.manager)
        if function is None:
            return []  # there is none, or `register` says what is wrong with it
        problems = []
        for source in self._call(plugin, OWN_HOOKS, function):
            wrong = check_own_specs(plugin.installed, source, self.manager.specs)
            problems += wrong
            if not wrong:
                self.manager.add_hookspecs(source, plugin.installed.title)
        return problems

    def register(self, plugin: LoadedPlugin) -> list[Problem]:
        """Check the implementations, give them to pluggy, collect the components."""
        problems = check_hooks(plugin, self.manager)
        twin = next((other for other in self._registered if other.object is plugin.object), None)
        if twin is not None:
            what = f"plugins {twin.installed.title} and {plugin.installed.title} are one and the same object"
            problems.append(Problem(what, plugin.installed.module, "give each entry point a module of its own"))
        if problems or self.faults[plugin.installed]:
            return problems
        self.manager.register(plugin.object, _key(plugin))
        self._registered.append(plugin)
        self._warn(plugin)
        return [*passed_over(plugin, self.manager), *self._collect(plugin)]

    def _collect(self, plugin: LoadedPlugin) -> list[Problem]:
        """What the registration hooks of one plugin return, checked."""
        problems: list[Problem] = []
        found: list[Registered] = []
        for kind, hook in HOOK_OF_KIND.items():
            for implementation in getattr(self.manager.hook, hook).get_hookimpls():
                if implementation.plugin_name != _key(plugin):
                    continue
                where = place_of_code(implementation.function, "")
                for item in self._call(plugin, hook, implementation.function):
                    wrong = _item_faults(plugin, kind, hook, item, where)
                    problems += wrong
                    found += [] if wrong else [Registered(kind, item, plugin.installed)]
        names = [(each.kind, each.component.name) for each in found]
        problems += [
            Problem(f"plugin {plugin.installed.title} registers {kind} {name!r} twice", mend="give each its own name")
            for kind, name in dict.fromkeys(name for name in names if names.count(name) > 1)
        ]
        self.components += found
        return problems

    def _call(self, plugin: LoadedPlugin, hook: str, function: Callable[[], Any]) -> list[Any]:
        """What a registration hook returns, and the call on record."""
        started = time.perf_counter()
        error = "raised"
        try:
            work = partial(_returned, hook, function)
            returned = guarded(plugin.installed, f"failed in {hook}", work, passing=(PluginError,))
            error = ""
            return returned
        except PluginError as wrong:
            raise PluginError([_told_of(plugin, each) for each in wrong.problems]) from wrong
        finally:
            self.calls.append(HookCall(hook, plugin.installed, time.perf_counter() - started, error))

    def _warn(self, plugin: LoadedPlugin) -> None:
        """One warning for everything deprecated that a plugin uses."""
        found = deprecations(plugin, self.manager)
        if found:
            text = f"plugin {plugin.installed.title}: {'; '.join(sentence for sentence, _ in found)}"
            code = inspect.unwrap(found[0][1]).__code__
            warnings.warn_explicit(text, MilesDeprecationWarning, code.co_filename, code.co_firstlineno)


def _listed(work: Callable[[LoadedPlugin], Iterable[Problem]], plugin: LoadedPlugin) -> list[Problem]:
    return list(work(plugin))


def _told_of(plugin: LoadedPlugin, problem: Problem) -> Problem:
    """The problem, naming whose it is."""
    title = plugin.installed.title
    what = problem.what if title in problem.what else f"plugin {title}: {problem.what}"
    return replace(problem, what=what, where=problem.where or origin(plugin.installed))


def _returned(hook: str, function: Callable[[], Any]) -> list[Any]:
    """What a registration hook returns, which is a list. Raises PluginError at its line when it is none."""
    returned = function()
    if isinstance(returned, Iterable) and not isinstance(returned, str | bytes | Mapping):
        return list(returned)
    what = (
        "nothing" if returned is None else f"one {type(returned).__name__}" if isinstance(returned, Component) else ""
    )
    shape = "[module]" if hook == OWN_HOOKS else "[Component(…)]"
    forgotten = "its `return` is missing: " if returned is None else ""
    raise PluginError(
        f"{hook} returns {what or repr(returned)}, expected a list",
        where=place_of_code(function, ""),
        mend=f"{forgotten}write `return {shape}`",
    )


def _item_faults(plugin: LoadedPlugin, kind: str, hook: str, item: Any, where: str) -> list[Problem]:
    """What is wrong with one item that a registration hook returned."""
    title = plugin.installed.title
    if not isinstance(item, Component):
        mend = f'return [Component("name", factory="module:attr")] for each {kind}'
        return [Problem(f"plugin {title}: {hook} returns {item!r}, expected miles_core.Component", where, mend)]
    who = f"plugin {title}: {kind} {item.name!r}"
    where = item.place or where
    if kind != "recipe" and not is_path(item.factory):
        what = f"{who} has the factory {item.factory!r}, expected the form module:attr"
        return [Problem(what, where, 'write factory="module:attr"')]
    if isinstance(item.capabilities, str):
        mend = f'write frozenset({{"{item.capabilities}"}})'
        return [Problem(f"{who} declares its capabilities as a text, expected a set of them", where, mend)]
    return [
        Problem(
            f"{who} declares the unknown capability {word!r}",
            where,
            f"did you mean {near!r}?" if near else "miles_core/contracts/capabilities.py lists them; your own begin x-",
        )
        for word, near in unknown_capabilities(item.capabilities).items()
    ]


def _key(plugin: LoadedPlugin) -> str:
    return f"{plugin.installed.distribution}:{plugin.installed.name}"


def _event(hook: str) -> str:
    return hook.removeprefix(PREFIX)


def _listeners(manager: HookManager, plugins: Sequence[LoadedPlugin]) -> dict[str, list[Listener]]:
    """The event hooks of healthy plugins: those marked `tryfirst`, the others in the order of enabling, `trylast`."""
    by_key = {_key(plugin): plugin.installed for plugin in plugins}
    listeners: dict[str, list[Listener]] = {}
    for spec in manager.specs.values():
        if spec.is_event:
            implementations = getattr(manager.hook, spec.name).get_hookimpls()
            ordered = sorted(implementations, key=lambda each: each.trylast - each.tryfirst)
            listeners[_event(spec.name)] = [
                Listener(by_key[each.plugin_name], each.function, tuple(each.argnames))
                for each in ordered
                if each.plugin_name in by_key
            ]
    return listeners
