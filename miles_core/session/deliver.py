"""One call with a client on the other end: sampled while the client is there, and handed over in full or withdrawn.

A turn is sampled whole before any of it is sent. A stream that takes long is begun early and kept alive with comments,
which clients skip; what goes wrong after that is told as an event, since the status was sent.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Iterator
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Send

from miles_core.session.call import ChatReply
from miles_core.session.dialect import Call, Dialect
from miles_core.session.faults import SessionFault
from miles_core.session.session import Session

KEEP_ALIVE = b": the turn is being sampled\n\n"
PIECE = 2**16
JSON, EVENTS = b"application/json", b"text/event-stream"


async def send_json(send: Send, status: int, body: Any, *headers: tuple[bytes, bytes]) -> None:
    """A whole answer."""
    await _start(send, status, JSON, *headers)
    await send({"type": "http.response.body", "body": json.dumps(body).encode()})


async def send_fault(send: Send, dialect: Dialect, fault: SessionFault) -> None:
    """In the client's own shape. `x-should-retry` keeps official clients from repeating what cannot succeed."""
    retry = (b"x-should-retry", b"true" if fault.retry else b"false")
    await send_json(send, dialect.status(fault), dialect.error(fault), retry)


class Delivery:
    """See the module's text. `seconds` bounds the sampling of one turn; a stream is begun, and then kept alive, each
    `beat` seconds. `faults` counts what is told inside a stream."""

    def __init__(
        self, receive: Receive, send: Send, dialect: Dialect, faults: Counter[str], *, seconds: float, beat: float
    ) -> None:
        self._faults = faults
        self._send = send
        self._dialect = dialect
        self._seconds = seconds
        self._beat = beat
        self._begun = False
        self._left = asyncio.create_task(_left(receive), name="whether the client is there")

    async def run(self, session: Session, call: Call) -> None:
        """Sample, and hand over. Raises SessionFault before anything was sent, and ClientDisconnect when the client
        left: a turn that it did not get is then withdrawn."""
        work = asyncio.create_task(session.chat(call.request), name="a turn")
        try:
            reply = await self._sampled(work, call.stream)
            try:
                await self._hand_over(reply, call)
            except ClientDisconnect:
                session.withdraw(reply)
                raise
        except SessionFault as fault:
            if not self._begun:
                raise
            self._faults[fault.code] += 1
            await self._chunks(iter([self._dialect.error_event(fault)]))
        finally:
            work.cancel()
            self._left.cancel()
            await asyncio.gather(work, self._left, return_exceptions=True)

    async def _sampled(self, work: asyncio.Task[ChatReply], stream: bool) -> ChatReply:
        """The turn. A client that leaves cancels it, and so does the end of its time."""
        end = asyncio.get_running_loop().time() + self._seconds
        while True:
            rest = end - asyncio.get_running_loop().time()
            pause = min(rest, self._beat) if stream else rest
            await asyncio.wait({work, self._left}, timeout=max(0.0, pause), return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                return work.result()
            if self._left.done():
                raise ClientDisconnect
            if pause == rest:
                raise _too_slow(self._seconds)
            await self._begin_stream()
            await self._body(KEEP_ALIVE)

    async def _hand_over(self, reply: ChatReply, call: Call) -> None:
        if call.stream:
            await self._begin_stream()
            await self._chunks(call.events(reply))
        else:
            body = json.dumps(call.whole(reply)).encode()
            await self._still_there()
            await _start(self._send, 200, JSON, (b"content-length", str(len(body)).encode()))
            await self._body(body, last=True)

    async def _begin_stream(self) -> None:
        if not self._begun:
            await self._still_there()
            self._begun = True
            await _start(self._send, 200, EVENTS, (b"cache-control", b"no-cache"))

    async def _chunks(self, events: Iterator[str]) -> None:
        ahead = next(events)
        for event in events:
            await self._body(ahead.encode())
            ahead = event
        await self._body(ahead.encode(), last=True)

    async def _body(self, data: bytes, last: bool = False) -> None:
        """In pieces: the server waits before a piece until the client has taken most of those before it."""
        for start in range(0, len(data), PIECE):
            await self._still_there()
            more = not last or start + PIECE < len(data)
            await self._send({"type": "http.response.body", "body": data[start : start + PIECE], "more_body": more})

    async def _still_there(self) -> None:
        """Sending to a client that left raises nothing: so it is looked for before each piece."""
        await asyncio.sleep(0)
        if self._left.done():
            raise ClientDisconnect


async def _start(send: Send, status: int, kind: bytes, *headers: tuple[bytes, bytes]) -> None:
    await send({"type": "http.response.start", "status": status, "headers": [(b"content-type", kind), *headers]})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _too_slow(seconds: float) -> SessionFault:
    what = f"the turn was not sampled in {seconds:g} seconds"
    return SessionFault(504, "engine_timeout", what, mend="nothing of it was kept: ask again", retry=True)
