"""What code of plugins may not do to the process of a command: end it without a word, or take its signals away."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def own_process() -> Iterator[None]:
    """Until the command ends, `os._exit` raises in this process (a forked child may still use it), so that a plugin
    cannot make a run that did nothing look done; and SIGTERM interrupts like Ctrl-C."""
    leave, pid = os._exit, os.getpid()

    def refuse(status: int) -> Any:
        if os.getpid() != pid:
            leave(status)
        raise RuntimeError(f"os._exit({status!r}) was called in the process of the command, which does not end so")

    os._exit = refuse
    before = None
    if threading.current_thread() is threading.main_thread():
        before = signal.signal(signal.SIGTERM, _interrupt)
    try:
        yield
    finally:
        os._exit = leave
        if before is not None:
            signal.signal(signal.SIGTERM, before)


def _interrupt(_number: int, _frame: object) -> None:
    raise KeyboardInterrupt
