"""The one thread that computes, and the way into it from the event loop."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

import torch

Result = TypeVar("Result")


class ComputingThread:
    """Runs calls in the order in which they came, and `step` between them whenever `ready()` says there is work.

    Everything that the calls and the step touch belongs to this thread: no lock is needed. An exception that leaves
    `step` goes to `failed`.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        ready: Callable[[], bool],
        step: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._calls: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._ready, self._step, self._failed = ready, step, failed
        self._threads = threads
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.busy_seconds = 0.0

    @property
    def alive(self) -> bool:
        return self._thread.is_alive()

    def start(self) -> None:
        self._thread.start()

    def post(self, call: Callable[[], None]) -> None:
        """Run it before the next step; it must not raise."""
        self._calls.put(call)

    async def call(self, function: Callable[..., Result], *arguments: Any) -> Result:
        """Run it before the next step and return what it returns, or raise what it raises."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Result] = loop.create_future()

        def run() -> None:
            try:
                result = function(*arguments)
            except Exception as error:
                loop.call_soon_threadsafe(_set, future, None, error)
            else:
                loop.call_soon_threadsafe(_set, future, result, None)

        self.post(run)
        return await future

    async def stop(self) -> None:
        """End the thread after the calls that are already there."""
        if self.alive:
            self._calls.put(None)
            await asyncio.to_thread(self._thread.join)

    def _run(self) -> None:
        torch.set_num_threads(self._threads)  # holds for the thread that says it
        with torch.inference_mode():
            while True:
                call = self._next_call()
                if call is _NOTHING:
                    self._timed_step()
                elif call is None:
                    return
                else:
                    call()

    def _next_call(self) -> Callable[[], None] | None:
        """The next call; waits for one unless there is a step to do."""
        try:
            return self._calls.get(block=not self._ready())
        except queue.Empty:
            return _NOTHING

    def _timed_step(self) -> None:
        started = time.perf_counter()
        try:
            self._step()
        except Exception as error:
            self._failed(error)
        self.busy_seconds += time.perf_counter() - started


def _NOTHING() -> None:
    """Stands for an empty queue."""


def _set(future: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if future.cancelled():
        return
    if error is None:
        future.set_result(result)
    else:
        future.set_exception(error)
