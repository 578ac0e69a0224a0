"""The two marks: `@hookspec` makes a function a hook, `@hookimpl` makes one an implementation; and what a hook's mark
says of its age."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar, overload

import pluggy

Function = TypeVar("Function", bound=Callable[..., Any])

hookimpl = pluggy.HookimplMarker("miles")
"""Marks an implementation, outermost of all decorators. `@hookimpl(optionalhook=True)` implements the hook of another
plugin that may be absent."""

_mark = pluggy.HookspecMarker("miles")
_FACTS = "miles_facts"


@dataclass(frozen=True, slots=True)
class Deprecated:
    """What goes away, in versions of the hook API: deprecated `since`, gone in `removed_in`; `replacement` says in
    words what to do instead."""

    since: str
    replacement: str
    removed_in: str

    def __str__(self) -> str:
        return f"is deprecated since hook API {self.since} and will be removed in {self.removed_in}: {self.replacement}"


@dataclass(frozen=True, slots=True)
class HookFacts:
    """The age of a hook: the hook API version that brought it, and what of it goes away. `arguments` are the deprecated
    ones by name."""

    since: str = ""
    deprecated: Deprecated | None = None
    arguments: Mapping[str, Deprecated] = field(default_factory=dict)


@overload
def hookspec(function: Function, /) -> Function: ...


@overload
def hookspec(
    *, since: str = "", deprecated: Deprecated | None = None, arguments: Mapping[str, Deprecated] | None = None
) -> Callable[[Function], Function]: ...


def hookspec(
    function: Any = None,
    /,
    *,
    since: str = "",
    deprecated: Deprecated | None = None,
    arguments: Mapping[str, Deprecated] | None = None,
) -> Any:
    """Mark a hook, as `@hookspec` or `@hookspec(since="1.1", …)`. A plugin's own are versions of its own."""
    facts = HookFacts(since, deprecated, dict(arguments or {}))

    def mark(function: Function) -> Function:
        setattr(function, _FACTS, facts)
        return _mark(function)

    return mark if function is None else mark(function)


def facts_of(function: Any) -> HookFacts:
    """What the mark says; nothing for a hook that pluggy's own marker marked."""
    found = getattr(function, _FACTS, None)
    return found if isinstance(found, HookFacts) else HookFacts()
