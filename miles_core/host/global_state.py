"""The state of a process that everybody shares, and how it changed: what an import should leave alone.

Only what is loaded already is looked at: a snapshot of numpy's generator must not be what imports numpy.
"""

from __future__ import annotations

import hashlib
import locale
import logging
import os
import random
import signal
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from typing import Any

Snapshot = Mapping[str, Any]


def snapshot() -> Snapshot:
    """What a later snapshot is compared with."""
    return {name: look() for name, look in _LOOKS.items()}


def changes(before: Snapshot, after: Snapshot) -> dict[str, str]:
    """What differs, by name, in words. A library that was first imported in between counts as changed by itself only
    where its state is known not to begin at random."""
    found = {}
    for name, old in before.items():
        new = after[name]
        if old is not None and new != old:
            found[name] = _difference(old, new)
    return found


def _difference(old: Any, new: Any) -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        added = [f"{key} added" for key in new if key not in old]
        removed = [f"{key} removed" for key in old if key not in new]
        changed = [f"{key} changed" for key in old if key in new and old[key] != new[key]]
        return _some([*added, *removed, *changed])
    if isinstance(old, list) and isinstance(new, list):
        added = [f"{item} added" for item in new if item not in old]
        removed = [f"{item} removed" for item in old if item not in new]
        return _some([*added, *removed]) or "another order"
    if isinstance(old, bytes):
        return "seeded or drawn from"
    return f"{old} became {new}"


def _some(parts: list[str], most: int = 6) -> str:
    return ", ".join(parts[:most]) + (f" and {len(parts) - most} more" if len(parts) > most else "")


def _digest(state: object) -> bytes:
    return hashlib.sha256(repr(state).encode()).digest()


def _root_handlers() -> list[str]:
    return [repr(handler) for handler in logging.getLogger().handlers]


def _signals() -> dict[str, str]:
    found = {}
    for number in signal.valid_signals():
        handler = signal.getsignal(number)
        found[signal.Signals(number).name if number in set(signal.Signals) else str(number)] = str(handler)
    return found


def _numpy_generator() -> bytes | None:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    kind, keys, *rest = numpy.random.get_state()
    return _digest((kind, keys.tobytes(), rest))


def _torch_generator() -> bytes | None:
    torch = sys.modules.get("torch")
    return _digest(torch.get_rng_state().tolist()) if torch is not None and hasattr(torch, "get_rng_state") else None


def _torch_settings() -> dict[str, str] | None:
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_default_dtype"):
        return None
    return {
        "default dtype": str(torch.get_default_dtype()),
        "gradients": str(torch.is_grad_enabled()),
        "deterministic algorithms": str(torch.are_deterministic_algorithms_enabled()),
    }


def _start_method() -> str:
    multiprocessing = sys.modules.get("multiprocessing")
    method = multiprocessing.get_start_method(allow_none=True) if multiprocessing is not None else None
    return str(method or "not chosen")


_LOOKS: Mapping[str, Callable[[], Any]] = {
    "environment variables": lambda: dict(os.environ),
    "sys.path": lambda: list(sys.path),
    "sys.meta_path": lambda: [repr(finder) for finder in sys.meta_path],
    "root logger's handlers": _root_handlers,
    "root logger's level": lambda: logging.getLevelName(logging.getLogger().level),
    "warnings filters": lambda: [str(each) for each in warnings.filters],
    "warnings.showwarning": lambda: repr(warnings.showwarning),
    "random's generator": lambda: _digest(random.getstate()),
    "numpy's generator": _numpy_generator,
    "torch's generator": _torch_generator,
    "torch's settings": _torch_settings,
    "multiprocessing's start method": _start_method,
    "signal handlers": _signals,
    "locale": lambda: str(locale.setlocale(locale.LC_ALL)),
    "working directory": os.getcwd,
    "sys.excepthook": lambda: repr(sys.excepthook),
    "threading.excepthook": lambda: repr(threading.excepthook),
    "sys.stdout and sys.stderr": lambda: f"{type(sys.stdout).__name__} and {type(sys.stderr).__name__}",
    "recursion limit": sys.getrecursionlimit,
    "threads left running": lambda: [thread.name for thread in threading.enumerate()],
}
