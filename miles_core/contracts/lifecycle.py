"""What everything long-lived has in common: a life, a clock, a place to report events to."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol


@dataclass(frozen=True, slots=True)
class Health:
    """`ok` and, when not, `detail` in words."""

    ok: bool
    detail: str = ""


class Lifecycle(Protocol):
    """The one life cycle: start once, pause and resume any number of times, drain, close once.

    `drain` returns when no work is in flight and starts no new work. `state` is JSON data that `restore` of a fresh
    object continues from. Cancelling a method is `asyncio.CancelledError` plus a grace period. `close` is idempotent.
    """

    async def start(self) -> None: ...
    async def pause(self) -> None: ...
    async def resume(self) -> None: ...
    async def drain(self) -> None: ...
    def state(self) -> Mapping[str, Any]: ...
    def restore(self, state: Mapping[str, Any]) -> None: ...
    async def close(self) -> None: ...
    async def health(self) -> Health: ...


class Clock(Protocol):
    """Time comes from here, so that a simulator runs the real code. Seconds, monotonic."""

    def now(self) -> float: ...
    async def sleep(self, seconds: float) -> None: ...


class RealClock:
    """The machine's monotonic clock."""

    def now(self) -> float:
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


class EventSink(Protocol):
    """Where the ring reports what happened. `name` is an event hook's name without its prefix, e.g. `step_finished`."""

    def emit(self, name: str, /, **facts: Any) -> None: ...


class NoEvents:
    """An event sink that nobody listens to."""

    def emit(self, name: str, /, **facts: Any) -> None:
        pass
