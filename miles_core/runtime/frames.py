"""Messages between the driver and a worker process: length-prefixed pickles over a socket pair.

Both ends are our own processes on one machine, joined by a socket that has no name, so nothing untrusted is unpickled.
A frame is a list of messages: what was said in one tick of the event loop arrives together.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
from dataclasses import dataclass
from typing import Any

_LENGTH = struct.Struct("!Q")


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


async def read_frame(reader: asyncio.StreamReader) -> list[Any]:
    """The next frame. Raises asyncio.IncompleteReadError when the other end is gone."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    messages: list[Any] = pickle.loads(await reader.readexactly(length))
    return messages


def write_frame(writer: asyncio.StreamWriter, messages: list[Any]) -> None:
    """Queue one frame for writing."""
    body = pickle.dumps(messages, protocol=5)
    writer.write(_LENGTH.pack(len(body)))
    writer.write(body)
