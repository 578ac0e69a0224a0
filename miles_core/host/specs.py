"""Which hooks there are: the core's, and those that plugins bring along."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from miles_core.errors import Problem
from miles_core.hookspecs import HOOK_OF_KIND, HookFacts, facts_of
from miles_core.host.members import function_of, is_spec, members, place_of_code
from miles_core.host.scan import InstalledPlugin

PREFIX = "miles_"
OWN_HOOKS = "miles_hookspecs"
REGISTRATION = (*HOOK_OF_KIND.values(), OWN_HOOKS)
"""The hooks that are called once, at activation. All others are event hooks."""


NOTED = (f"{PREFIX}phase_started", f"{PREFIX}workers_ready")
"""What a run notes in its events file beside the event hooks: no plugin may bring hooks of these names."""


@dataclass(frozen=True, slots=True)
class HookSpec:
    """One hook: what an implementation may ask for, its age, and whose it is ("" for the core's)."""

    name: str
    arguments: tuple[str, ...]
    facts: HookFacts
    owner: str = ""

    @property
    def is_event(self) -> bool:
        return self.name not in REGISTRATION


def read_specs(source: Any, owner: str = "") -> Iterator[HookSpec]:
    """The marked functions of a module or an object."""
    for name, value in members(source).items():
        if is_spec(value):
            arguments = tuple(inspect.signature(getattr(source, name)).parameters)
            yield HookSpec(name, arguments, facts_of(function_of(value)), owner)


def prefix_of(plugin: InstalledPlugin) -> str:
    """What the names of a plugin's own hooks begin with."""
    return f"{PREFIX}{re.sub(r'[^a-z0-9]+', '_', plugin.name.lower())}_"


def check_own_specs(plugin: InstalledPlugin, source: Any, known: Mapping[str, HookSpec]) -> list[Problem]:
    """What is wrong with one item that `miles_hookspecs` of a plugin returned."""
    who = f"plugin {plugin.title}: {OWN_HOOKS} returns {source!r}"
    if inspect.isclass(source):
        return [Problem(f"{who}, expected an instance or a module", mend=f"return {source.__qualname__}()")]
    marked = {name: value for name, value in members(source).items() if is_spec(value)}
    if not marked:
        return [Problem(f"{who}, which has no hook", mend="mark its functions with @miles_core.hookspec")]
    problems = []
    for name, value in marked.items():
        fault = _own_fault(plugin, name, getattr(source, name), known)
        if fault:
            problems.append(Problem(f"plugin {plugin.title}: {fault[0]}", place_of_code(value, ""), fault[1]))
    return problems


def _own_fault(
    plugin: InstalledPlugin, name: str, function: Any, known: Mapping[str, HookSpec]
) -> tuple[str, str] | None:
    prefix = prefix_of(plugin)
    if not name.startswith(prefix) or name == prefix:
        return f"its own hook is named {name}", f"let the name begin with {prefix}"
    if name in known or name in NOTED:
        owner = (known[name].owner if name in known else "") or "miles-core"
        return f"hook {name} is already there, from {owner}", "name it otherwise"
    if inspect.iscoroutinefunction(function):
        return f"hook {name} is a coroutine, hooks are plain functions", "write def instead of async def"
    options = getattr(function, "miles_spec", {})
    if options.get("firstresult") or options.get("historic"):
        return f"hook {name} is marked firstresult or historic", "all hooks of plugins are events: mark it plainly"
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD or parameter.default is not parameter.empty:
            return f"hook {name} has the argument {parameter}, expected plain named ones", "write the name alone"
    return None
