"""The child processes of this one, to see whether a component leaves some behind."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

_PROC = Path("/proc")


def children() -> frozenset[int]:
    """Ids of the living children of this process; none where the system does not tell (no /proc)."""
    found: set[int] = set()
    for task in (_PROC / "self" / "task").glob("*/children"):
        with contextlib.suppress(OSError):
            found.update(map(int, task.read_text().split()))
    return frozenset(found)


def ended(process: int, seconds: float) -> bool:
    """Whether the process ends within that time."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if not _lives(process):
            return True
        time.sleep(0.02)
    return not _lives(process)


def _lives(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    with contextlib.suppress(OSError, IndexError):
        return (_PROC / str(process) / "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return True
