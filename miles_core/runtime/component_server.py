"""What a worker process does, whatever carries its messages: it builds one component and answers calls about it.

Plain methods compute one at a time in a thread of their own; coroutine methods run on the event loop.
"""

from __future__ import annotations

import asyncio
import inspect
import pickle
import traceback
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from miles_core.contracts.component import BuildContext, ComponentRef
from miles_core.errors import MilesError, RunError
from miles_core.runtime.calls import BUILT, Call, Cancel, Reply

CLOSE_GRACE_SECONDS = 5.0


class ComponentServer:
    """Answers the calls of one driver about one component. Lives on the event loop that runs its methods.

    `send` is given all replies of one tick; it either takes all of them or raises because one cannot travel.
    """

    def __init__(self, send: Callable[[list[Reply]], None]) -> None:
        self._send = send
        self._compute = ThreadPoolExecutor(1, thread_name_prefix="compute")
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._outbox: list[Reply] = []
        self._component: Any = None
        self._built = False

    def build(self, ref: ComponentRef, context: BuildContext) -> None:
        """Begin to build and start the component. The reply with the number BUILT tells when that is done."""
        self._begin(BUILT, self._build, (ref, context))

    def take(self, messages: Iterable[Call | Cancel]) -> None:
        """Begin what one tick of the driver asked for."""
        for message in messages:
            if isinstance(message, Cancel):
                if task := self._tasks.get(message.number):
                    task.cancel()
                continue
            method = getattr(self._component, message.method, None) if self._built else None
            if method is None or message.method.startswith("_"):
                self._reply(Reply(message.number, error=RunError(f"worker has no method {message.method!r}")))
            else:
                self._begin(message.number, method, message.args)

    async def close(self) -> None:
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

    def _begin(self, number: int, method: Any, args: tuple[Any, ...]) -> None:
        task = self._tasks[number] = asyncio.get_running_loop().create_task(self._answer(number, method, args))
        task.add_done_callback(lambda _: self._tasks.pop(number, None))

    async def _build(self, ref: ComponentRef, context: BuildContext) -> None:
        loop = asyncio.get_running_loop()
        self._component = await loop.run_in_executor(self._compute, ref.build, context)
        start = getattr(self._component, "start", None)
        if start is not None:
            await start()
        self._built = True

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
            self._reply(Reply(number, error=portable(error)))
        else:
            self._reply(Reply(number, value))

    def _reply(self, reply: Reply) -> None:
        if not self._outbox:
            asyncio.get_running_loop().call_soon(self._flush)
        self._outbox.append(reply)

    def _flush(self) -> None:
        replies, self._outbox = self._outbox, []
        try:
            self._send(replies)
        except Exception:  # one cannot travel (it does not pickle): find out which
            for reply in replies:
                self._send_alone(reply)

    def _send_alone(self, reply: Reply) -> None:
        try:
            self._send([reply])
        except Exception as error:
            what = f"a worker returned {type(reply.value).__name__}, which cannot travel: {error}"
            self._send([Reply(reply.number, error=RunError(what))])


def portable(error: BaseException) -> BaseException:
    """The error itself when it can be raised elsewhere, else a RunError with its text and notes."""
    reason = _why_not_portable(error)
    if not reason:
        return error
    told = RunError(f"{type(error).__name__}: {error}")
    told.add_note(f"(the original error stays in the worker: {reason})")
    for note in getattr(error, "__notes__", ()):
        told.add_note(note)
    return told


def _why_not_portable(error: BaseException) -> str:
    if not isinstance(error, Exception) or isinstance(error, StopIteration | StopAsyncIteration):
        return "it would end the driver's event loop"
    try:
        pickle.loads(pickle.dumps(error))
    except Exception as reason:  # any failure to pickle has the same cure
        return f"it does not pickle: {reason}"
    return ""
