"""Calls of a component that lives elsewhere, as the driver sees them: each is paired with its reply.

A runtime brings the messages across by its own means. What is said in one tick of the event loop travels together, so
that an engine admits it together: without that, what it computes side by side would depend on timing.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from miles_core.errors import WorkerDied

BUILT = 0
"""The number of the reply that tells that the component is built and started, or why not."""


@dataclass(frozen=True, slots=True)
class Call:
    """The driver asks for a method. `number` pairs it with its Reply."""

    number: int
    method: str
    args: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Cancel:
    """The driver no longer waits for a call."""

    number: int


@dataclass(frozen=True, slots=True)
class Reply:
    """What a call returned, or the exception that it raised."""

    number: int
    value: Any = None
    error: BaseException | None = None


class PendingCalls:
    """The calls of one worker that wait for a reply. Lives on one event loop.

    `send` is given all messages of one tick; it either takes all of them or raises because one cannot travel.
    """

    def __init__(self, name: str, send: Callable[[list[Call | Cancel]], None]) -> None:
        self._name = name
        self._send = send
        self._numbers = itertools.count(BUILT + 1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._outbox: list[Call | Cancel] = []
        self._death: WorkerDied | None = None
        self._closing = False

    @property
    def death(self) -> WorkerDied | None:
        """Why nobody answers any more; None while somebody does."""
        return self._death

    async def built(self) -> None:
        """Wait for the reply with the number BUILT. Raises what building raised."""
        await self._reply(BUILT)

    async def call(self, method: str, args: tuple[Any, ...]) -> Any:
        """Raises what the method raised, WorkerDied, or the reason why the arguments cannot travel."""
        if self._death is not None:
            raise self._death
        if self._closing:
            raise WorkerDied(f"worker {self._name!r} was closed")
        number = next(self._numbers)
        self._say(Call(number, method, args))
        try:
            return await self._reply(number)
        except asyncio.CancelledError:
            if self._waiting.pop(number, None) is not None and self._death is None:
                self._say(Cancel(number))
            raise

    def answer(self, replies: Iterable[Reply]) -> None:
        """Wake those who wait for these replies."""
        for reply in replies:
            waiting = self._waiting.pop(reply.number, None)
            if waiting is None or waiting.done():
                continue  # the caller was cancelled
            if reply.error is not None:
                waiting.set_exception(reply.error)
            else:
                waiting.set_result(reply.value)

    def close(self) -> None:
        """Take no more calls. Those that wait go on waiting for a reply or for `bury`."""
        self._closing = True

    def bury(self, death: WorkerDied) -> None:
        """Nobody answers any more: raise `death` for whoever waits, and for whoever calls from now on."""
        self._death = self._death or death
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(self._death)
                if self._closing:
                    waiting.exception()  # nobody asks any more
        self._waiting.clear()

    async def _reply(self, number: int) -> Any:
        reply = self._waiting[number] = asyncio.get_running_loop().create_future()
        return await reply

    def _say(self, message: Call | Cancel) -> None:
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outbox.append(message)

    def _flush(self) -> None:
        messages, self._outbox = self._outbox, []
        if self._death is not None:
            return
        try:
            self._send(messages)
        except Exception:  # one cannot travel (it does not pickle): find out whose it is
            for message in messages:
                self._send_alone(message)

    def _send_alone(self, message: Call | Cancel) -> None:
        try:
            self._send([message])
        except Exception as error:
            self.answer([Reply(message.number, error=error)])
