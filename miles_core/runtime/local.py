"""The `local` runtime: each component in a child process of this one, behind an async handle."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from pydantic import Field

from miles_core.contracts.component import BuildContext, ComponentRef
from miles_core.contracts.options import Options
from miles_core.errors import WorkerDied
from miles_core.runtime.frames import Call, Cancel, read_frame, write_frame

LAST_WORDS_LINES = 12

QUIET = {"PYDANTIC_DISABLE_PLUGINS": "1"}
"""What a worker's environment has unless the driver's says otherwise: pydantic would list every folder on the import
path for plugins of its own, and die of one distribution whose metadata is damaged."""


class LocalOptions(Options):
    """Options of the `local` runtime."""

    grace_seconds: float = Field(
        default=10.0, gt=0, description="how long a worker may take to end before it is killed"
    )
    environment: Mapping[str, str] = Field(default_factory=dict, description="environment variables of every worker")


class LocalHandle:
    """One component in a child process. See `contracts.observing.Handle`."""

    def __init__(self, name: str, process: subprocess.Popen[bytes], log: Path, grace: float) -> None:
        self._name = name
        self._process = process
        self._log = log
        self._grace = grace
        self._numbers = itertools.count(1)
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._outbox: list[Call | Cancel] = []
        self._death: WorkerDied | None = None
        self._closing = False
        self._reading: asyncio.Task[None] | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def alive(self) -> bool:
        return self._death is None and self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    async def open(self, sock: socket.socket, first: list[Any]) -> None:
        """Send what to build and wait until it is built. Raises what building raised."""
        self._reader, self._writer = await asyncio.open_connection(sock=sock, limit=2**20)
        ready: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[0] = ready
        self._reading = asyncio.create_task(self._read(), name=f"replies of {self._name}")
        write_frame(self._writer, first)
        await ready

    async def call(self, method: str, *args: Any) -> Any:
        if self._death is not None:
            raise self._death
        if self._closing:
            raise WorkerDied(f"worker {self._name!r} was closed")
        number = next(self._numbers)
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = reply
        self._say(Call(number, method, args))
        try:
            return await reply
        except asyncio.CancelledError:
            if self._waiting.pop(number, None) is not None and self._death is None:
                self._say(Cancel(number))
            raise

    async def close(self) -> None:
        """Close the socket, which ends the worker; kill it when it does not end within the grace period."""
        if self._closing:
            return
        self._closing = True
        self._writer.close()
        try:
            await asyncio.wait_for(asyncio.to_thread(self._process.wait), self._grace)
        except TimeoutError:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading

    def kill(self) -> None:
        """End the process at once, without asking."""
        self._process.kill()

    def _say(self, message: Call | Cancel) -> None:
        # Calls of one tick travel in one frame, so that an engine admits them together.
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outbox.append(message)

    def _flush(self) -> None:
        messages, self._outbox = self._outbox, []
        if self._death is None and not self._writer.is_closing():
            write_frame(self._writer, messages)

    async def _read(self) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                for reply in await read_frame(self._reader):
                    waiting = self._waiting.pop(reply.number, None)
                    if waiting is None or waiting.done():
                        continue  # the caller was cancelled
                    if reply.error is not None:
                        waiting.set_exception(reply.error)
                    else:
                        waiting.set_result(reply.value)
        await self._bury()

    async def _bury(self) -> None:
        status = await asyncio.to_thread(self._process.wait)
        how = f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}"
        self._death = WorkerDied(
            f"worker {self._name!r} {how} while it was needed{_last_words(self._log)}",
            where=str(self._log),
            mend="its log has the whole story; `miles resume` continues from the last checkpoint",
        )
        for waiting in self._waiting.values():
            if not waiting.done():
                waiting.set_exception(self._death)
                if self._closing:
                    waiting.exception()  # nobody asks any more
        self._waiting.clear()


class LocalRuntime:
    """Starts child processes and ends them all."""

    def __init__(self, options: LocalOptions, context: BuildContext) -> None:
        self._options = options
        self._handles: list[LocalHandle] = []
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._logs = context.folder / "logs" if context.folder else None

    async def start(self, ref: ComponentRef, context: BuildContext) -> LocalHandle:
        ours, theirs = socket.socketpair()
        log = self._log_of(context.name)
        with log.open("ab") as output:
            process = self._spawn(theirs, output)
        theirs.close()
        handle = LocalHandle(context.name, process, log, self._options.grace_seconds)
        self._handles.append(handle)
        # Child processes import what this one could import: research code beside a recipe included.
        await handle.open(ours, [ref, context, [entry for entry in sys.path if entry]])
        return handle

    async def close(self) -> None:
        await asyncio.gather(*(handle.close() for handle in self._handles))
        self._handles.clear()
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def _spawn(self, theirs: socket.socket, output: IO[bytes]) -> subprocess.Popen[bytes]:
        path = os.pathsep.join(filter(None, sys.path))
        return subprocess.Popen(
            [sys.executable, "-m", "miles_core.runtime.worker", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env={**QUIET, **os.environ, "PYTHONPATH": path, **self._options.environment},
        )

    def _log_of(self, name: str) -> Path:
        if self._logs is None:
            self._scratch = self._scratch or tempfile.TemporaryDirectory(prefix="miles-logs-")
            return Path(self._scratch.name) / f"{name}.log"
        self._logs.mkdir(parents=True, exist_ok=True)
        return self._logs / f"{name}.log"


def _last_words(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-LAST_WORDS_LINES:]
    return "; its last words:\n" + "\n".join(f"    {line}" for line in lines) if lines else ""
