"""A limit on how long a check may take, also for one that blocks the thread."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType


class Hung(BaseException):
    """Raised in the middle of whatever does not return."""


@contextlib.contextmanager
def limited(seconds: float) -> Iterator[None]:
    """Raise `Hung` in the block when it takes longer. Without effect outside the main thread, where no signal
    arrives."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise Hung(f"no end after {seconds:g} s")

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds, 1.0)  # again and again: some code catches everything
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)
        signal.signal(signal.SIGALRM, before)
