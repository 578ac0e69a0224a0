"""Event hooks, called one implementation at a time: one that raises is counted and named, the others go on."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from miles_core.hookspecs import HOOK_OF_KIND
from miles_core.host.hooks import PREFIX, SPECS
from miles_core.host.load import place_of
from miles_core.host.scan import InstalledPlugin

log = logging.getLogger("miles.plugins")

EVENTS: Mapping[str, tuple[str, ...]] = {
    hook.removeprefix(PREFIX): arguments for hook, arguments in SPECS.items() if hook not in HOOK_OF_KIND.values()
}
"""Every event and its facts."""


@dataclass(frozen=True, slots=True)
class Listener:
    """One implementation of an event hook, with the facts that it asks for."""

    plugin: InstalledPlugin
    function: Callable[..., Any]
    arguments: tuple[str, ...]


@dataclass(slots=True)
class ListenerUse:
    """What the event hooks of one plugin did so far. `last_error` is "" as long as none failed."""

    plugin: InstalledPlugin
    calls: int = 0
    failures: int = 0
    seconds: float = 0.0
    last_error: str = ""


class EventCaller:
    """The `EventSink` of a run. Listeners are bound once; an emission costs no more than calling them."""

    def __init__(self, listeners: Mapping[str, Sequence[Listener]]) -> None:
        self._listeners = {name: tuple(listeners.get(name, ())) for name in EVENTS}
        self._use: dict[InstalledPlugin, ListenerUse] = {
            listener.plugin: ListenerUse(listener.plugin) for each in listeners.values() for listener in each
        }

    def emit(self, name: str, /, **facts: Any) -> None:
        """Tell every listener. Raises KeyError for an unknown event or a missing fact: a fault of the caller."""
        expected = EVENTS[name]
        missing = [argument for argument in expected if argument not in facts]
        if missing:
            raise KeyError(f"event {name} lacks the facts {', '.join(missing)}")
        for listener in self._listeners[name]:
            self._call(name, listener, {argument: facts[argument] for argument in listener.arguments})

    def summary(self) -> tuple[ListenerUse, ...]:
        """Calls, failures and seconds of each plugin that listens."""
        return tuple(self._use.values())

    def _call(self, name: str, listener: Listener, facts: Mapping[str, Any]) -> None:
        use = self._use[listener.plugin]
        use.calls += 1
        started = time.perf_counter()
        try:
            listener.function(**facts)
        except (KeyboardInterrupt, GeneratorExit, asyncio.CancelledError):
            raise
        except BaseException as error:
            use.failures += 1
            use.last_error = f"{type(error).__name__}: {error}"
            log.error(
                "plugin %s failed in %s%s: %s (%s; failure %d)",
                listener.plugin.title,
                PREFIX,
                name,
                use.last_error,
                place_of(error) or "no place",
                use.failures,
            )
        finally:
            use.seconds += time.perf_counter() - started
