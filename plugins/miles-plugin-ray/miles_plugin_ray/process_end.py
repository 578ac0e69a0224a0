"""Waiting for the end of a process of this machine that is not our child."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path

POLL_SECONDS = 0.02


async def see_end(pid: int, seconds: float) -> None:
    """Return when the process is gone; kill it when that takes longer."""
    deadline = time.monotonic() + seconds
    while _lives(pid):
        if time.monotonic() > deadline:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(POLL_SECONDS)


def _lives(pid: int) -> bool:
    """A zombie, which waits for its parent alone, does not live."""
    try:
        os.kill(pid, 0)
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except ProcessLookupError:
        return False
    except FileNotFoundError:
        return not Path("/proc/self/stat").exists()  # a system without /proc: the signal was the answer
