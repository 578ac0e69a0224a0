"""Hook implementations of a plugin, checked in plain words before pluggy takes them.

pluggy is silent about a misspelt hook until asked, about a plugin without any hook, and about marked objects that it
cannot call; a person who writes a plugin should hear of each, with the file and the nearest right name.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Iterator
from typing import Any

import pluggy

from miles_core import hookspecs
from miles_core.errors import Problem
from miles_core.host.load import LoadedPlugin

PREFIX = "miles_"
_MARK = "miles_impl"
_SPEC_MARK = "miles_spec"
_WRAPPED = (functools.partial, functools.lru_cache(lambda: None).__class__)

SPECS: dict[str, tuple[str, ...]] = {
    name: tuple(inspect.signature(function).parameters)
    for name, function in vars(hookspecs).items()
    if hasattr(function, _SPEC_MARK)
}
"""Every hook and the arguments that an implementation may ask for."""


class HookManager(pluggy.PluginManager):
    """pluggy's manager with our specifications. Only names with our prefix are looked at: registering a module with a
    thousand names is then thirty times faster."""

    def __init__(self) -> None:
        super().__init__("miles")
        self.add_hookspecs(hookspecs)

    def parse_hookimpl_opts(self, plugin: Any, name: str) -> Any:
        return super().parse_hookimpl_opts(plugin, name) if name.startswith(PREFIX) else None


def check_hooks(plugin: LoadedPlugin) -> list[Problem]:
    """What is wrong with the hook implementations of a plugin; nothing when pluggy may register it."""
    subject = plugin.object
    title = plugin.installed.title
    where = f"{plugin.installed.module} of {plugin.installed.distribution} {plugin.installed.version}"
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
    for name, value in _attributes(subject):
        marked = getattr(value, _MARK, None) is not None
        if not marked:
            if name in SPECS and inspect.isroutine(value):
                problems.append(
                    Problem(
                        f"plugin {title}: {name} looks like a hook but is not marked",
                        _place(value, where),
                        "write @miles_core.hookimpl above it",
                    )
                )
            continue
        count += 1
        fault = _fault(name, value)
        if fault:
            problems.append(Problem(f"plugin {title}: {fault[0]}", _place(value, where), fault[1]))
    if not count and not problems:
        problems.append(
            Problem(
                f"plugin {title} implements no hook",
                where,
                "mark its functions with @miles_core.hookimpl, e.g. one named miles_rewards",
            )
        )
    return problems


def _attributes(subject: Any) -> Iterator[tuple[str, Any]]:
    """Names and values that may be hooks. Properties are not run, foreign objects are not asked for attributes."""
    for name in dir(subject):
        value = inspect.getattr_static(subject, name, None)
        if isinstance(value, staticmethod | classmethod):
            value = value.__func__
        if inspect.isroutine(value) or isinstance(value, _WRAPPED):
            yield name, value


def _fault(name: str, value: Any) -> tuple[str, str] | None:
    """What is wrong with one marked function and how to mend it."""
    options = getattr(value, _MARK)
    if not isinstance(options, dict):
        return None
    if not name.startswith(PREFIX) or options.get("specname"):
        return f"{name} is marked as a hook", f"name the function like the hook itself, {PREFIX}…, without specname"
    if not inspect.isfunction(value):
        return f"{name} is a {type(value).__name__}, which is never called", "mark the plain function, outermost"
    if name not in SPECS:
        near = difflib.get_close_matches(name, SPECS, n=1)
        known = "see miles_core/hookspecs.py for every hook"
        return f"there is no hook {name}", f"did you mean {near[0]}?" if near else known
    if inspect.iscoroutinefunction(value) or inspect.isasyncgenfunction(value):
        return f"{name} is a coroutine, hooks are plain functions", "write def instead of async def"
    if options.get("wrapper") or options.get("hookwrapper"):
        return f"{name} is a hook wrapper, which Miles does not call", "implement the hook itself"
    return _argument_fault(name, value)


def _argument_fault(name: str, value: Any) -> tuple[str, str] | None:
    accepted = SPECS[name]
    says = f"accepted: {', '.join(accepted) or 'none'}"
    for index, parameter in enumerate(inspect.signature(value).parameters.values()):
        if index == 0 and parameter.name == "self":
            continue
        if parameter.kind is not parameter.POSITIONAL_OR_KEYWORD:
            return f"{name} has the argument {parameter}, expected plain named ones", says
        if parameter.default is not parameter.empty:
            return f"{name} gives {parameter.name} a default, which is never used", f"write {parameter.name} alone"
        if parameter.name not in accepted:
            near = difflib.get_close_matches(parameter.name, accepted, n=1)
            hint = f"; did you mean {near[0]}?" if near else ""
            return f"{name} has no argument {parameter.name!r}", says + hint
    return None


def _place(value: Any, otherwise: str) -> str:
    code = getattr(inspect.unwrap(value) if callable(value) else value, "__code__", None)
    return f"{code.co_filename}:{code.co_firstlineno}" if code else otherwise
