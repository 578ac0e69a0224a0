"""Running the event loop from plain code: Ctrl-C and SIGTERM end it cleanly, whatever a plugin does meanwhile."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, TypeVar

from miles_core.errors import PluginError

Result = TypeVar("Result")

log = logging.getLogger(__name__)

INSIST_SECONDS = 5.0
"""How long a plugin may hold the event loop after the run was told to end; then it is interrupted where it is."""

LEFT_SECONDS = 15.0
"""How long tasks that go on after the run may take to end; then they are named and left."""


class Interruption:
    """What ends a `wait_for` of another thread, as Ctrl-C ends one of the main thread."""

    def __init__(self) -> None:
        self.asked = False
        self.heard = threading.Event()
        """Set when the work was told to end, and when it has ended anyhow."""
        self._lock = threading.Lock()
        self._cancel: Callable[[], object] | None = None

    def ask(self) -> None:
        """End the work; before it has begun, as soon as it does."""
        with self._lock:
            self.asked = True
            if self._cancel is not None:
                self._cancel()

    @contextmanager
    def reaching(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> Iterator[None]:
        """Meanwhile `ask` cancels this task."""
        with self._lock:
            self._cancel = lambda: loop.call_soon_threadsafe(self._end, task)
            if self.asked:
                self._cancel()
        try:
            yield
        finally:
            with self._lock:
                self._cancel = None
            self.heard.set()

    def _end(self, task: asyncio.Task[Any]) -> None:
        self.heard.set()
        task.cancel()


def wait_for(work: Coroutine[Any, Any, Result], interruption: Interruption | None = None) -> Result:
    """Run a coroutine to its end. SIGTERM ends it like Ctrl-C: the first one cancels it, so that it cleans up; a second
    one, or plain code that holds the event loop for `INSIST_SECONDS`, is interrupted at once. Inside a running event
    loop (a notebook), it runs in a thread of its own. `interruption` ends it from another thread."""
    if not _in_a_loop():
        return _run(work, interruption or Interruption())
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_run, work, interruption or Interruption()).result()


def _in_a_loop() -> bool:
    """Asked apart, so that its exception is no context of what fails later."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run(work: Coroutine[Any, Any, Result], interruption: Interruption) -> Result:
    loop = asyncio.new_event_loop()
    try:
        task = loop.create_task(work)
        with _signals(loop, task) as stop, interruption.reaching(loop, task):
            try:
                return loop.run_until_complete(task)
            except asyncio.CancelledError:
                if stop.asked or interruption.asked:
                    raise KeyboardInterrupt from None
                raise
            except SystemExit as error:  # nothing of ours raises it inside the loop
                raise PluginError(
                    f"a plugin called sys.exit({error.code!r}) in the driver",
                    mend="let it raise an exception that says why",
                ) from error
            finally:
                _end_the_rest(loop)
    finally:
        loop.close()


class _Stop:
    """What SIGINT and SIGTERM do: cancel the work; when asked again, or not heard in time, interrupt at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> None:
        self.asked = False
        self._heard = False
        self._loop = loop
        self._task = task

    def __call__(self, number: int, _frame: object) -> None:
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        self._loop.call_soon_threadsafe(self._cancel)
        insisting = threading.Timer(INSIST_SECONDS, self._insist, [number])
        insisting.daemon = True
        insisting.start()

    def _cancel(self) -> None:
        self._heard = True
        self._task.cancel()

    def _insist(self, number: int) -> None:
        if not self._heard:
            os.kill(os.getpid(), number)


@contextmanager
def _signals(loop: asyncio.AbstractEventLoop, task: asyncio.Task[Any]) -> Iterator[_Stop]:
    stop = _Stop(loop, task)
    if threading.current_thread() is not threading.main_thread():
        yield stop
        return
    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end_the_rest(loop: asyncio.AbstractEventLoop) -> None:
    """Cancel what still runs, and wait for it, but not for ever: an agent may ignore that it was cancelled."""
    rest = asyncio.all_tasks(loop)
    for task in rest:
        task.cancel()
    if rest:
        _, stubborn = loop.run_until_complete(asyncio.wait(rest, timeout=LEFT_SECONDS))
        for task in stubborn:
            log.warning("%s goes on although it was cancelled; it is left", task.get_name())
        if stubborn:
            loop.set_exception_handler(lambda *_: None)  # it would say of each that it was destroyed
    loop.run_until_complete(loop.shutdown_asyncgens())
    loop.run_until_complete(loop.shutdown_default_executor())
