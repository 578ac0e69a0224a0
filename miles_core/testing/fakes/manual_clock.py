"""A clock that stands still until a test moves it."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count

SETTLING_TICKS = 20
"""Turns of the event loop that woken tasks get to come to rest before time moves on."""


class ManualClock:
    """`contracts.lifecycle.Clock`. `await clock.advance(seconds)` wakes sleepers in the order of their deadlines, each
    at its own time, and lets it run before the next one wakes; sleeps that begin meanwhile count too."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now
        self._order = count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def now(self) -> float:
        return self._now

    @property
    def sleeping(self) -> int:
        """How many sleeps have not ended."""
        return sum(not future.done() for _, _, future in self._sleepers)

    async def sleep(self, seconds: float) -> None:
        """Until the clock was advanced by that much; 0 or less gives way to other tasks once, as asyncio's does."""
        if seconds <= 0:
            await asyncio.sleep(0)
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (self._now + seconds, next(self._order), future))
        await future

    async def advance(self, seconds: float) -> None:
        """Move time forward. Raises ValueError for a negative number."""
        if seconds < 0:
            raise ValueError(f"time does not go back ({seconds} s)")
        target = self._now + seconds
        await _settle()
        while self._sleepers and self._sleepers[0][0] <= target:
            deadline, _, future = heapq.heappop(self._sleepers)
            if future.done():  # its task was cancelled
                continue
            self._now = deadline
            future.set_result(None)
            await _settle()
        self._now = target


async def _settle() -> None:
    for _ in range(SETTLING_TICKS):
        await asyncio.sleep(0)
