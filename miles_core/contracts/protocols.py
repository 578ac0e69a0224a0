"""The Protocol of each kind, and how an object differs from it. Members are read from miles_core.contracts."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterator
from typing import Any

from miles_core.contracts import engine, learning, model, observing, rollout, trainer, transport

PROTOCOLS: dict[str, type] = {
    "agent": rollout.Agent,
    "generator": rollout.Generator,
    "rollout": rollout.Rollout,
    "data": rollout.Data,
    "reward": rollout.Reward,
    "filter": rollout.Filter,
    "buffer": rollout.Buffer,
    "staleness": rollout.Staleness,
    "schedule": rollout.Schedule,
    "advantage": learning.Advantage,
    "correction": learning.Correction,
    "loss": learning.Loss,
    "model": model.ModelSpec,
    "renderer": model.Renderer,
    "matcher": rollout.Matcher,
    "engine": engine.Engine,
    "trainer": trainer.Trainer,
    "transport": transport.Transport,
    "precision": transport.Precision,
    "evaluator": observing.Evaluator,
    "tracker": observing.Tracker,
    "runtime": observing.Runtime,
}
"""Kinds whose components are objects. Recipes are YAML files; middleware keeps the contract of its layer."""


def members(protocol: type) -> dict[str, Any]:
    """Public methods and properties that the Protocol asks for, by name, in order of definition."""
    found: dict[str, Any] = {}
    for base in reversed(protocol.__mro__):
        for name, value in vars(base).items():
            if not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)):
                found[name] = value
    return found


def differences(protocol: type, thing: Any) -> Iterator[tuple[str, str]]:
    """(what is different, what to write instead) for each member that `thing` does not keep."""
    for name, promised in members(protocol).items():
        if isinstance(promised, property):
            yield from _property(protocol, thing, name)
        else:
            yield from _method(protocol, thing, name, promised)


def _property(protocol: type, thing: Any, name: str) -> Iterator[tuple[str, str]]:
    owner = type(thing).__name__
    if not hasattr(thing, name):
        yield f"{owner} has no attribute {name}", f"add the property {name} of {protocol.__name__}"
    elif inspect.ismethod(getattr(thing, name)):
        yield f"{owner}.{name} is a method", f"make it a property: {protocol.__name__}.{name} is read, not called"


def _method(protocol: type, thing: Any, name: str, promised: Any) -> Iterator[tuple[str, str]]:
    owner = type(thing).__name__
    word = "async def" if inspect.iscoroutinefunction(promised) else "def"
    wanted = list(inspect.signature(promised).parameters.values())[1:]
    line = f"{word} {name}({', '.join(['self', *_written(wanted)])})"
    given = getattr(thing, name, None)
    if given is None:
        yield f"{owner} has no method {name}", f"add `{line}` ({protocol.__name__})"
        return
    if not callable(given):
        yield f"{owner}.{name} is {given!r}, no method", f"write `{line}`"
        return
    if inspect.iscoroutinefunction(_plain(given)) != inspect.iscoroutinefunction(promised):
        is_now = "def" if word == "async def" else "async def"
        yield f"{owner}.{name} is `{is_now}`, {protocol.__name__} has `{word}`", f"write `{line}`"
    try:
        found = list(inspect.signature(given).parameters.values())
    except (TypeError, ValueError):
        return  # implemented in C: it cannot be looked at, only called
    if fault := _parameters(wanted, found):
        yield f"{owner}.{name} {fault}", f"write `{line}`"


def _plain(given: Any) -> Any:
    while isinstance(given, functools.partial):
        given = given.func
    return given


def _parameters(wanted: list[inspect.Parameter], found: list[inspect.Parameter]) -> str:
    """What keeps a call as the Protocol has it from working; "" when nothing does."""
    if any(p.kind is p.VAR_POSITIONAL for p in found) and any(p.kind is p.VAR_KEYWORD for p in found):
        return ""
    by_name = {p.name: p for p in found}
    named = [p.name for p in found if p.kind is p.POSITIONAL_OR_KEYWORD]
    positional = [p.name for p in wanted if p.kind is p.POSITIONAL_OR_KEYWORD]
    if named[: len(positional)] != positional:
        return f"takes ({', '.join(named)}), expected ({', '.join(positional)})"
    for parameter in wanted:
        if parameter.kind is parameter.KEYWORD_ONLY and parameter.name not in by_name:
            return f"has no argument {parameter.name}"
    names = {p.name for p in wanted}
    for parameter in found:
        required = parameter.default is parameter.empty and parameter.kind in (
            parameter.POSITIONAL_OR_KEYWORD,
            parameter.KEYWORD_ONLY,
        )
        if required and parameter.name not in names:
            return f"needs the argument {parameter.name}, which nobody gives"
    return ""


def _written(parameters: list[inspect.Parameter]) -> Iterator[str]:
    star = False
    for parameter in parameters:
        if parameter.kind is parameter.KEYWORD_ONLY and not star:
            star = True
            yield "*"
        yield str(parameter).replace("'", "")


def protocol_of(kind: str) -> type | None:
    """The Protocol that a component of this kind keeps; None for a kind that has none."""
    return PROTOCOLS.get(kind)
