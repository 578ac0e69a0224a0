"""What belongs to the whole process, and which of it an import changed. Imports nothing that it looks at."""

from __future__ import annotations

import os
import signal
import sys
import threading
import warnings
from typing import Any


def snapshot() -> dict[str, str]:
    """Everything by name, as text that can be compared."""
    return {
        "the environment": repr(sorted(os.environ.items())),
        "sys.path": repr(sys.path),
        "sys.meta_path": repr([type(each).__name__ for each in sys.meta_path]),
        "sys.stdout or sys.stderr": repr((id(sys.stdout), id(sys.stderr))),
        "sys.excepthook": repr(sys.excepthook),
        "the recursion limit": repr(sys.getrecursionlimit()),
        "the working directory": os.getcwd(),  # noqa: PTH109 - pathlib may not be imported yet
        "warnings.filters": repr([(f[0], str(f[1]), str(f[2]), str(f[3]), f[4]) for f in warnings.filters]),
        "signal handlers": repr({number: str(signal.getsignal(number)) for number in _signals()}),
        "threads": repr(sorted(thread.name for thread in threading.enumerate())),
        "the root logger": _root_logger(),
        "the state of random": _random(),
        "the state of numpy.random": _numpy_random(),
        "the multiprocessing start method": _start_method(),
        "the locale": _locale(),
    }


def changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """The names of what differs."""
    return [name for name, value in before.items() if after[name] != value]


def _signals() -> list[signal.Signals]:
    return sorted(signal.valid_signals() & {signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1})


def _root_logger() -> str:
    import logging

    root = logging.getLogger()
    return repr((root.level, [type(each).__name__ for each in root.handlers], logging.root.manager.disable))


def _random() -> str:
    import random

    return str(hash(random.getstate()))


def _numpy_random() -> str:
    """The same text until numpy is there: what only imports it changes nothing."""
    numpy: Any = sys.modules.get("numpy")
    return "" if numpy is None else repr(numpy.random.get_state(legacy=False))


def _start_method() -> str:
    import multiprocessing

    return str(multiprocessing.get_start_method(allow_none=True))


def _locale() -> str:
    import locale

    return repr(locale.setlocale(locale.LC_ALL))
