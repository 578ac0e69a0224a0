"""Event hooks, called one implementation at a time: one that raises is counted and named, the others go on."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from types import CoroutineType
from typing import Any

from miles_core.contracts.blame import place_of, text_of
from miles_core.errors import PluginError, Problem, RunError
from miles_core.host.call_trace import HookCall, HookTrace
from miles_core.host.scan import InstalledPlugin
from miles_core.host.specs import PREFIX

log = logging.getLogger("miles.plugins")

LOGGED = 3
"""Failures of one plugin that are logged; the others are only counted."""


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

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.plugin.name,
            "distribution": self.plugin.distribution,
            "version": self.plugin.version,
            "calls": self.calls,
            "failures": self.failures,
            "seconds": round(self.seconds, 6),
            "last_error": self.last_error,
        }


class EventCaller:
    """Tells the listeners of one registry. They are bound once; an emission costs no more than calling them.

    Emissions of several threads wait for each other (at most `patience` seconds): a listener is never called twice at
    once. A listener may report another event, but not the one that it is being told. When `strict`, the first failure
    is raised, after every listener was told; later ones are only counted, since the run is ending.
    """

    def __init__(
        self,
        events: Mapping[str, Collection[str]],
        listeners: Mapping[str, Sequence[Listener]],
        *,
        patience: float = 60.0,
    ) -> None:
        self.events = {name: tuple(facts) for name, facts in events.items()}
        self.strict = False
        self.trace: HookTrace | None = None
        self._listeners = {name: tuple(listeners.get(name, ())) for name in events}
        self._use: dict[InstalledPlugin, ListenerUse] = {
            listener.plugin: ListenerUse(listener.plugin) for each in listeners.values() for listener in each
        }
        self._patience = patience
        self._turn = threading.RLock()
        self._telling: list[str] = []
        self._fault: PluginError | None = None
        self._raised = False

    def emit(self, name: str, /, **facts: Any) -> None:
        """Tell every listener. Raises KeyError for an unknown event or a missing fact: a fault of the caller;
        PluginError when strict and a listener failed, or when a listener reports the event that it is being told;
        RunError when another thread's listener does not return."""
        expected = self.events[name]
        missing = [argument for argument in expected if argument not in facts]
        if missing:
            raise KeyError(f"event {name} lacks the facts {', '.join(missing)}")
        listeners = self._listeners[name]
        if not listeners:
            return
        self._take_turn(name)
        try:
            for listener in listeners:
                self._call(name, listener, {argument: facts[argument] for argument in listener.arguments})
        finally:
            self._telling.pop()
            outermost = not self._telling
            self._turn.release()
        if self.strict and outermost and self._fault is not None and not self._raised:
            self._raised = True
            raise self._fault

    def summary(self) -> tuple[ListenerUse, ...]:
        """Calls, failures and seconds of each plugin that listens."""
        return tuple(self._use.values())

    def _take_turn(self, name: str) -> None:
        if not self._turn.acquire(timeout=self._patience):
            raise RunError(
                f"event {name} waited {self._patience:g} s for a listener of {' in '.join(self._telling) or 'another'}",
                mend="a listener must not wait for another thread that reports events; --trace-plugins shows which",
            )
        if name in self._telling:
            self._turn.release()
            raise PluginError(f"event {name} is being told: a listener must not report it again")
        self._telling.append(name)

    def _call(self, name: str, listener: Listener, facts: Mapping[str, Any]) -> None:
        use = self._use[listener.plugin]
        use.calls += 1
        text = "interrupted"
        started = time.perf_counter()
        try:
            returned = listener.function(**facts)
            if isinstance(returned, CoroutineType):
                returned.close()
                raise TypeError("it returned a coroutine, which nobody awaits")
            text = ""
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin may raise anything, SystemExit and CancelledError included
            text = text_of(error)
            self._count(name, use, text, place_of(error))
        finally:
            spent = time.perf_counter() - started
            use.seconds += spent
            if self.trace is not None:
                self.trace.write(HookCall(PREFIX + name, listener.plugin, spent, text))

    def _count(self, name: str, use: ListenerUse, text: str, place: str) -> None:
        use.failures += 1
        use.last_error = text
        what = f"plugin {use.plugin.title} failed in {PREFIX}{name}: {text}"
        if use.failures <= LOGGED:
            further = "; further ones are only counted" if use.failures == LOGGED else ""
            log.error("%s (%s; failure %d%s)", what, place or "no place", use.failures, further)
        if self._fault is None:
            mend = f"repair {use.plugin.distribution or use.plugin.name}, or run without --strict-plugins"
            self._fault = PluginError([Problem(what, place, mend)])
