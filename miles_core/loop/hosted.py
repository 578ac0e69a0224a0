"""The driver in a worker of the runtime: the same ring as in the command's process, told and asked by calls.

The ring has a thread and an event loop of its own, so that this worker answers whatever a plugin does in the ring. The
runtime that hosts it is built again in here, by the plan: engines and trainer are the driver's own workers. When its
command is gone, it is closed like every worker, and ends the ring.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from miles_core.contracts.component import BuildContext
from miles_core.contracts.options import NoOptions
from miles_core.loop.interruptible import Interruption
from miles_core.loop.order import Ended, Event, Order
from miles_core.observe.folder import RunFolder

PATIENCE_SECONDS = 2.0
"""How long `events` waits for something to tell."""

LAST_SECONDS = 0.05
"""The same when nothing more will happen: whoever asks on and on lets others work."""

KEPT_EVENTS = 10_000
"""Events that wait to be told; of more, the oldest are not shown."""


class HostedDriver:
    """What a command calls of its driver. `run` is called once."""

    def __init__(self, options: NoOptions, context: BuildContext) -> None:
        if context.folder is None:
            raise AssertionError("a driver is started for a run's folder")
        self._folder = context.folder
        self._interruption = Interruption()
        self._begun = False

    async def start(self) -> None:
        self._over = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._relay = Relay(self._loop)

    def run(self, order: Order) -> Ended:
        """Go on with the run from its latest checkpoint, or from the beginning, to its end."""
        from miles_core.loop.api import drive_hosted  # not before: the worker answers while it is imported

        self._begun = True
        try:
            folder = RunFolder.at(_named(order.folder, self._folder))
            return Ended(drive_hosted(folder, order, self._relay, self._interruption).summary)
        except BaseException as error:  # whatever it is, it is no death
            return Ended.by(error)
        finally:
            _set(self._loop, self._over)
            self._relay.close()

    async def events(self) -> list[Event]:
        """What happened since it was asked last; waits a moment for something to happen."""
        return await self._relay.take()

    async def interrupt(self) -> None:
        """End the run as Ctrl-C does. Returns when the ring has heard it."""
        self._interruption.ask()
        while not (self._interruption.heard.is_set() or self._over.is_set()):
            await asyncio.sleep(0.05)

    async def close(self) -> None:
        """End the run if it still goes, and wait for its end: whoever wanted it is gone."""
        if self._begun and not self._over.is_set():
            self._interruption.ask()
            await self._over.wait()


class Relay:
    """Is told by the ring's thread what happens, and hands it on to whoever asks on the event loop `loop`."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._news = asyncio.Event()
        self._said: deque[Event] = deque(maxlen=KEPT_EVENTS)
        self._closed = False

    def on(self, name: str, facts: Mapping[str, Any]) -> None:
        self._said.append((name, {key: _sendable(value) for key, value in facts.items()}))
        _set(self._loop, self._news)

    def close(self) -> None:
        """There will be no more."""
        self._closed = True
        _set(self._loop, self._news)

    async def take(self) -> list[Event]:
        """What was not taken yet. Waits for something, but not for long."""
        if not self._said:
            patience = LAST_SECONDS if self._closed else PATIENCE_SECONDS
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), patience)
        self._news.clear()
        return [self._said.popleft() for _ in range(len(self._said))]


def _set(loop: asyncio.AbstractEventLoop, event: asyncio.Event) -> None:
    with contextlib.suppress(RuntimeError):  # the worker has ended meanwhile
        loop.call_soon_threadsafe(event.set)


def _named(name: Path, folder: Path) -> Path:
    """The folder by the name that the person knows, where that leads to it."""
    try:
        return name if name.samefile(folder) else folder
    except OSError:
        return folder


def _sendable(value: Any) -> Any:
    return dict(value) if isinstance(value, Mapping) else value
