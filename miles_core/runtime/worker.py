"""The process that hosts one component: `python -m miles_core.runtime.worker FD NAME`.

It is told exactly what to build, builds it, and answers calls until the driver's end of the socket closes, which is
also how it learns that the driver died: no worker outlives its driver.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import traceback

from miles_core.runtime.calls import Reply
from miles_core.runtime.component_server import ComponentServer
from miles_core.runtime.frames import read_frame, write_frame


async def _serve(descriptor: int) -> None:
    """Build what the first frame names, then answer until the driver is gone."""
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=descriptor))

    def send(replies: list[Reply]) -> None:
        if not writer.is_closing():
            write_frame(writer, replies)

    server = ComponentServer(send)
    ref, context, path = await read_frame(reader)
    sys.path[:0] = [entry for entry in path if entry not in sys.path]
    server.build(ref, context)
    with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
        while True:
            server.take(await read_frame(reader))
    await server.close()


def main() -> None:
    """Serve the socket whose descriptor is the first argument."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the driver's to handle; it closes the socket
    try:
        asyncio.run(_serve(int(sys.argv[1])))
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # a computing thread must not keep a process whose driver is gone


if __name__ == "__main__":
    main()
