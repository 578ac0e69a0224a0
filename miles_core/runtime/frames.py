"""Frames between the driver and a worker process: length-prefixed pickles over a socket pair.

Both ends are our own processes on one machine, joined by a socket that has no name, so nothing untrusted is unpickled.
A frame is a list of messages: what was said in one tick of the event loop arrives together.
"""

from __future__ import annotations

import asyncio
import pickle
import struct
from typing import Any

_LENGTH = struct.Struct("!Q")


async def read_frame(reader: asyncio.StreamReader) -> list[Any]:
    """The next frame. Raises asyncio.IncompleteReadError when the other end is gone."""
    (length,) = _LENGTH.unpack(await reader.readexactly(_LENGTH.size))
    messages: list[Any] = pickle.loads(await reader.readexactly(length))
    return messages


def write_frame(writer: asyncio.StreamWriter, messages: list[Any]) -> None:
    """Queue one frame for writing. Raises what pickling raises; then nothing was written."""
    body = pickle.dumps(messages, protocol=5)
    writer.write(_LENGTH.pack(len(body)))
    writer.write(body)
