"""Trying one check of the kit on a component made up by a test: no installation, no subprocess."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Mapping
from types import ModuleType
from typing import Any

from miles_core.contracts.component import Component
from miles_core.host.registry import Registered, Registry
from miles_core.host.scan import Index, InstalledPlugin
from miles_core.testing.kit.check import Check, Finding
from miles_core.testing.kit.run import Examination, Trial, all_checks

HOME = ModuleType("miles_kit_made_up")
sys.modules[HOME.__name__] = HOME
PLUGIN = InstalledPlugin(name="made-up", distribution="", version="", module=HOME.__name__)
_numbers = itertools.count()


def path_of(thing: Any) -> str:
    """`module:attr` under which `thing` is found, in this process only."""
    name = f"{getattr(thing, '__name__', 'thing')}_{next(_numbers)}"
    setattr(HOME, name, thing)
    return f"{HOME.__name__}:{name}"


def find_check(check_id: str, *, module: str = "") -> Check:
    """The check of that id. Two modules of one kind may have a check of one name: then `module` says which."""
    found = [
        c for c in all_checks() if c.id == check_id and (c.run.__module__.rpartition(".")[2] == module or not module)
    ]
    assert len(found) == 1, f"{check_id}: {len(found)} checks"
    return found[0]


def try_check(
    check_id: str,
    factory: Any,
    *,
    kind: str = "",
    options: Any = None,
    example: Mapping[str, Any] | None = None,
    capabilities: frozenset[str] = frozenset(),
    summary: str = "made up",
    seconds: float = 20.0,
    beside: Mapping[str, Any] | None = None,
) -> Finding:
    """What one check finds of a component that `factory` makes. `beside`: kind -> factory of others in its plugin."""
    component = Component(
        name="made-up",
        factory=factory if isinstance(factory, str) else path_of(factory),
        summary=summary,
        capabilities=capabilities,
        example=dict(example or {}),
        **({} if options is None else {"options": options if isinstance(options, str) else path_of(options)}),
    )
    registered = Registered(kind or check_id.partition("/")[0], component, PLUGIN)
    others = [Registered(other, Component("beside", path_of(made)), PLUGIN) for other, made in (beside or {}).items()]
    registry = Registry(Index((PLUGIN,)), [PLUGIN], [registered, *others], {})
    return Examination(PLUGIN, registry, None, seconds).attempt(Trial(find_check(check_id), registered))
