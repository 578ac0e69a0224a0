"""How long work keeps an event loop from everything else: a driver has one loop, and every attempt waits for it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from miles_core.testing.kit.check import expect

LONGEST = 0.2
"""Seconds without a turn of the loop that are too many."""
TRIES = 3
"""The best one counts: the first may import something, and a busy machine takes its time."""
BEAT = 0.005


async def expect_free_loop(work: Callable[[], Awaitable[Any]], what: str) -> None:
    """Fail when the work holds the event loop longer than LONGEST, each time that it is tried."""
    stalls: list[float] = []
    while len(stalls) < TRIES and min(stalls, default=LONGEST) >= LONGEST:
        stalls.append(await longest_stall(work))
    expect(
        min(stalls) < LONGEST,
        f"while {what} works, nothing else does for {min(stalls):.2f} s: it runs in the event loop of the driver, "
        "which all attempts share",
        "await what waits (`await asyncio.sleep`, an async client); give what blocks or computes to "
        "`await asyncio.to_thread(function, ...)`",
    )


async def longest_stall(work: Callable[[], Awaitable[Any]]) -> float:
    """Seconds of the longest time in which the loop ran nothing but the work. What the work raises comes through."""
    worst, last = 0.0, time.perf_counter()

    def look() -> None:
        nonlocal worst, last
        now = time.perf_counter()
        worst, last = max(worst, now - last - BEAT), now

    async def beat() -> None:
        while True:
            await asyncio.sleep(BEAT)
            look()

    beating = asyncio.ensure_future(beat())
    try:
        await asyncio.sleep(0)
        look()
        await work()
        look()
    finally:
        beating.cancel()
        await asyncio.gather(beating, return_exceptions=True)
    return worst
