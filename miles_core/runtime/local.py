"""The `local` runtime: each component in a child process of this one, behind an async handle."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import IO, Any

from pydantic import Field

from miles_core.contracts.component import BuildContext, ComponentRef
from miles_core.contracts.options import Options
from miles_core.errors import WorkerDied
from miles_core.runtime.calls import Call, Cancel, PendingCalls
from miles_core.runtime.frames import read_frame, write_frame
from miles_core.runtime.surroundings import last_words, worker_environment, worker_path


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
        self._calls = PendingCalls(name, self._send)
        self._closing = False
        self._reading: asyncio.Task[None] | None = None
        self._writer: asyncio.StreamWriter | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def alive(self) -> bool:
        return self._calls.death is None and self._process.poll() is None

    @property
    def pid(self) -> int:
        return self._process.pid

    async def open(self, sock: socket.socket, first: list[Any]) -> None:
        """Send what to build and wait until it is built. Raises what building raised."""
        reader, self._writer = await asyncio.open_connection(sock=sock, limit=2**20)
        self._reading = asyncio.create_task(self._read(reader), name=f"replies of {self._name}")
        write_frame(self._writer, first)
        await self._calls.built()

    async def call(self, method: str, *args: Any) -> Any:
        return await self._calls.call(method, args)

    async def close(self) -> None:
        """Close the socket, which ends the worker; kill it when it does not end within the grace period."""
        if self._closing:
            return
        self._closing = True
        self._calls.close()
        if self._writer is None:  # it was never told what to build
            self._process.kill()
        else:
            self._writer.close()
        try:
            await asyncio.wait_for(asyncio.to_thread(self._process.wait), self._grace)
        except TimeoutError:
            self._process.kill()
            await asyncio.to_thread(self._process.wait)
        except asyncio.CancelledError:  # whoever waited was told to end at once
            self._process.kill()
            raise
        if self._reading is not None:
            self._reading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._reading
        self._calls.bury(WorkerDied(f"worker {self._name!r} was closed"))

    def kill(self) -> None:
        """End the process at once, without asking."""
        self._process.kill()

    def _send(self, messages: list[Call | Cancel]) -> None:
        if self._writer is not None and not self._writer.is_closing():
            write_frame(self._writer, messages)

    async def _read(self, reader: asyncio.StreamReader) -> None:
        how = ""
        try:
            while True:
                self._calls.answer(await read_frame(reader))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # it is gone
        except Exception as error:  # a reply that cannot be read here: whose it was is not known
            self._process.kill()
            how = f"answered what cannot be read here ({type(error).__name__}: {error})"
        await self._bury(how)

    async def _bury(self, how: str) -> None:
        status = await asyncio.to_thread(self._process.wait)
        how = how or (f"was killed by signal {-status}" if status < 0 else f"ended with exit status {status}")
        self._calls.bury(
            WorkerDied(
                f"worker {self._name!r} {how} while it was needed{last_words(self._log)}",
                where=str(self._log),
                mend="its log has the whole story; `miles resume` continues from the last checkpoint",
            )
        )


class LocalRuntime:
    """Starts child processes and ends them all."""

    def __init__(self, options: LocalOptions, context: BuildContext) -> None:
        self._options = options
        self._handles: list[LocalHandle] = []
        weakref.finalize(self, _kill_all, self._handles)  # also when the interpreter ends: nobody may have closed it
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._logs = context.folder / "logs" if context.folder else None

    async def start(self, ref: ComponentRef, context: BuildContext) -> LocalHandle:
        ours, theirs = socket.socketpair()
        log = self._log_of(context.name)
        with log.open("ab") as output:
            process = self._spawn(context.name, theirs, output)
        theirs.close()
        handle = LocalHandle(context.name, process, log, self._options.grace_seconds)
        self._handles.append(handle)
        # Child processes import what this one could import: research code beside a recipe included.
        try:
            await handle.open(ours, [ref, context, worker_path()])
        except BaseException:
            handle.kill()  # nobody has a handle to end it by
            raise
        return handle

    async def close(self) -> None:
        await asyncio.gather(*(handle.close() for handle in self._handles))
        self._handles.clear()
        if self._scratch is not None:
            self._scratch.cleanup()
            self._scratch = None

    def _spawn(self, name: str, theirs: socket.socket, output: IO[bytes]) -> subprocess.Popen[bytes]:
        """Its name is an argument for whoever lists processes."""
        return subprocess.Popen(
            [sys.executable, "-m", "miles_core.runtime.worker", str(theirs.fileno()), name],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            env=worker_environment(self._options.environment),
        )

    def _log_of(self, name: str) -> Path:
        if self._logs is None:
            self._scratch = self._scratch or tempfile.TemporaryDirectory(prefix="miles-logs-")
            return Path(self._scratch.name) / f"{name}.log"
        self._logs.mkdir(parents=True, exist_ok=True)
        return self._logs / f"{name}.log"


def _kill_all(handles: list[LocalHandle]) -> None:
    for handle in handles:
        handle.kill()
