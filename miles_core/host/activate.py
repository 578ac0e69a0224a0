"""From a decision to a registry: import, check, register, collect; whoever fails is left out whole and named."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from functools import partial
from typing import Any

from miles_core.contracts.component import Component
from miles_core.errors import PluginError, Problem, RequestError
from miles_core.hookspecs import HOOK_OF_KIND
from miles_core.host.decide import Decision, decide
from miles_core.host.events import EVENTS, Listener
from miles_core.host.hooks import PREFIX, HookManager, check_hooks
from miles_core.host.load import LoadedPlugin, guarded, load
from miles_core.host.registry import Registered, Registry
from miles_core.host.scan import Index, scan


def activate(index: Index, decision: Decision) -> tuple[Registry, tuple[Problem, ...]]:
    """Import what was enabled and collect what it registers. A plugin that fails any part of this is left out whole,
    with its problems; the others are there."""
    loaded, problems = load(decision.enabled)
    faults = list(problems)
    manager = HookManager()
    components: list[Registered] = []
    healthy: list[LoadedPlugin] = []
    for plugin in loaded:
        before = len(faults)
        faults += check_hooks(plugin)
        registered: list[Registered] = []
        if len(faults) == before:
            try:
                guarded(plugin.installed, "failed to register", partial(manager.register, plugin.object, _key(plugin)))
                registered = _collect(manager, plugin, faults)
            except PluginError as error:
                faults += error.problems
        if len(faults) == before:
            components += registered
            healthy.append(plugin)
    working = [plugin.installed for plugin in healthy]
    failed = [*(plugin for plugin in decision.enabled if plugin not in working), *decision.refused]
    return Registry(index, working, components, _listeners(manager, healthy), failed, decision.off), tuple(faults)


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


def _returned(implementation: Any) -> list[Any]:
    return list(implementation.function())


def _key(plugin: LoadedPlugin) -> str:
    return f"{plugin.installed.distribution}:{plugin.installed.name}"


def _collect(manager: HookManager, plugin: LoadedPlugin, faults: list[Problem]) -> list[Registered]:
    """What the registration hooks of one plugin return, checked."""
    found: list[Registered] = []
    for kind, hook in HOOK_OF_KIND.items():
        for implementation in getattr(manager.hook, hook).get_hookimpls():
            if implementation.plugin_name != _key(plugin):
                continue
            returned = guarded(plugin.installed, f"failed in {hook}", partial(_returned, implementation))
            found += [Registered(kind, item, plugin.installed) for item in returned if isinstance(item, Component)]
            faults += [
                Problem(
                    f"plugin {plugin.installed.title}: {hook} returns {item!r}, expected miles_core.Component",
                    where=inspect.getsourcefile(implementation.function) or "",
                    mend=f'return [Component("name", factory="module:attr")] for each {kind}',
                )
                for item in returned
                if not isinstance(item, Component)
            ]
    names = [(each.kind, each.component.name) for each in found]
    faults += [
        Problem(f"plugin {plugin.installed.title} registers {kind} {name!r} twice", mend="give each its own name")
        for kind, name in dict.fromkeys(name for name in names if names.count(name) > 1)
    ]
    return found


def _listeners(manager: HookManager, plugins: Sequence[LoadedPlugin]) -> dict[str, list[Listener]]:
    """The event hooks of healthy plugins, in the order of enabling."""
    by_key = {_key(plugin): plugin.installed for plugin in plugins}
    listeners: dict[str, list[Listener]] = {}
    for event in EVENTS:
        implementations = getattr(manager.hook, PREFIX + event).get_hookimpls()
        listeners[event] = [
            Listener(by_key[each.plugin_name], each.function, tuple(each.argnames))
            for each in implementations
            if each.plugin_name in by_key
        ]
    return listeners
