"""An event loop on which time passes only when nothing else is left to do.

`run_in_virtual_time(main())` runs a coroutine to its end: `asyncio.sleep(3600)` takes no time, timers fire in order,
and two runs of the same coroutine are the same to the last turn of the loop. What waits for something that never comes
is an error at once instead of a hang. Threads and sockets have no place on it.
"""

from __future__ import annotations

import asyncio
import math
import selectors
from collections.abc import Coroutine
from typing import Any, TypeVar

Result = TypeVar("Result")


class VirtualClock:
    """`contracts.lifecycle.Clock` on the time of the running loop."""

    def now(self) -> float:
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def run_in_virtual_time(work: Coroutine[Any, Any, Result]) -> Result:
    """The result of `work`. Raises RuntimeError when everything waits and no timer is left."""
    with asyncio.Runner(loop_factory=_VirtualLoop) as runner:
        return runner.run(work)


class _VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Jumping(self))

    def time(self) -> float:
        return self.now


class _Jumping(selectors.DefaultSelector):
    """Instead of waiting for the next timer, moves the time there."""

    def __init__(self, loop: _VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("everything waits for something that never comes")
        if not ready and timeout:
            # late in a long simulation the step may be lost in rounding; time must go on all the same
            self._loop.now = max(self._loop.now + timeout, math.nextafter(self._loop.now, math.inf))
        return ready
