"""The process that hosts one component: `python -m miles_core.runtime.worker FD`.

It is told exactly what to build, builds it, and answers calls until the driver's end of the socket closes, which is
also how it learns that the driver died: no worker outlives its driver. Plain methods compute one at a time in a thread
of their own; coroutine methods run on the event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import os
import pickle
import signal
import socket
import sys
import traceback
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from miles_core.contracts.component import BuildContext, ComponentRef
from miles_core.errors import MilesError, RunError
from miles_core.runtime.frames import Call, Cancel, Reply, read_frame, write_frame

CLOSE_GRACE_SECONDS = 5.0


class Worker:
    """Answers the calls of one driver about one component."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._compute = ThreadPoolExecutor(1, thread_name_prefix="compute")
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._outbox: list[Reply] = []
        self._component: Any = None

    async def serve(self) -> None:
        """Build what the first frame names, then answer until the driver is gone."""
        ref, context, path = await read_frame(self._reader)
        sys.path[:0] = [entry for entry in path if entry not in sys.path]
        built = asyncio.create_task(self._answer(0, self._build, (ref, context)))
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                for message in await read_frame(self._reader):
                    self._take(message, built)
        await self._close()

    def _take(self, message: Call | Cancel, built: asyncio.Task[None]) -> None:
        if isinstance(message, Cancel):
            if task := self._tasks.get(message.number):
                task.cancel()
            return
        method = getattr(self._component, message.method, None) if built.done() else None
        if method is None or message.method.startswith("_"):
            self._reply(Reply(message.number, error=RunError(f"worker has no method {message.method!r}")))
            return
        task = asyncio.create_task(self._answer(message.number, method, message.args))
        self._tasks[message.number] = task
        task.add_done_callback(lambda _: self._tasks.pop(message.number, None))

    async def _build(self, ref: ComponentRef, context: BuildContext) -> None:
        loop = asyncio.get_running_loop()
        self._component = await loop.run_in_executor(self._compute, ref.build, context)
        start = getattr(self._component, "start", None)
        if start is not None:
            await start()

    async def _answer(self, number: int, method: Any, args: tuple[Any, ...]) -> None:
        try:
            if inspect.iscoroutinefunction(method):
                value = await method(*args)
            else:
                value = await asyncio.get_running_loop().run_in_executor(self._compute, method, *args)
        except asyncio.CancelledError:
            raise
        except BaseException as error:  # whatever a plugin raises belongs to the caller, who can name the worker
            text = "".join(traceback.format_exception(error))
            if isinstance(error, MilesError):
                error.origin = text
            else:
                error.add_note(text)
            self._reply(Reply(number, error=_portable(error)))
        else:
            self._reply(Reply(number, value))

    def _reply(self, reply: Reply) -> None:
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outbox.append(reply)

    def _flush(self) -> None:
        replies, self._outbox = self._outbox, []
        if not self._writer.is_closing():
            write_frame(self._writer, replies)

    async def _close(self) -> None:
        """Give the component a moment to free what outlives a process (files, segments)."""
        for task in list(self._tasks.values()):
            task.cancel()
        close = getattr(self._component, "close", None)
        if close is None:
            return
        if inspect.iscoroutinefunction(close):
            await asyncio.wait_for(close(), CLOSE_GRACE_SECONDS)
        else:
            loop = asyncio.get_running_loop()
            await asyncio.wait_for(loop.run_in_executor(self._compute, close), CLOSE_GRACE_SECONDS)


def _portable(error: BaseException) -> BaseException:
    """The error itself when it can be raised elsewhere, else a RunError with its text and notes."""
    reason = _why_not_portable(error)
    if not reason:
        return error
    portable = RunError(f"{type(error).__name__}: {error}")
    portable.add_note(f"(the original error stays in the worker: {reason})")
    for note in getattr(error, "__notes__", ()):
        portable.add_note(note)
    return portable


def _why_not_portable(error: BaseException) -> str:
    if not isinstance(error, Exception) or isinstance(error, StopIteration | StopAsyncIteration):
        return "it would end the driver's event loop"
    try:
        pickle.loads(pickle.dumps(error))
    except Exception as reason:  # any failure to pickle has the same cure
        return f"it does not pickle: {reason}"
    return ""


async def _serve(descriptor: int) -> None:
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=descriptor))
    await Worker(reader, writer).serve()


def main() -> None:
    """Serve the socket whose descriptor is the only argument."""
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
