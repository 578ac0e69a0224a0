"""Tasks that a component leaves behind, and work that must end soon."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any

from miles_core.testing.fakes.chat import TASK_NAME as ENDPOINT_TASK
from miles_core.testing.kit.check import expect, fail

SOON = 5.0
"""Seconds in which what was cancelled ends, on a busy machine."""
TURNS = 50
"""Turns of the event loop after which what can go on without waiting for anything has gone on."""


async def settle() -> None:
    """Let everything run that does not wait for something."""
    for _ in range(TURNS):
        await asyncio.sleep(0)


async def soon(work: Coroutine[Any, Any, Any] | asyncio.Task[Any], what: str, mend: str) -> Any:
    """The result of the work. Fails the check when it does not end soon."""
    task = work if isinstance(work, asyncio.Task) else asyncio.ensure_future(work)
    done, _ = await asyncio.wait({task}, timeout=SOON)
    if not done:
        task.cancel()
        fail(f"{what} did not end within {SOON:g} s", mend)
    return task.result()


async def cancelled(task: asyncio.Task[Any], what: str) -> None:
    """Cancel the task and expect that it ends soon, as cancelled."""
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=SOON)
    mend = "let CancelledError through: never catch BaseException without raising it again"
    if not done:
        fail(f"{what} went on for {SOON:g} s after it was cancelled", mend)
    if task.cancelled():
        return
    error = task.exception()
    fail(f"{what} was cancelled and {f'raised {error!r}' if error else f'returned {task.result()!r:.100}'}", mend)


@contextmanager
def nothing_left(what: str) -> Iterator[None]:
    """Expect that the block leaves no task running that it did not find."""
    before = asyncio.all_tasks()
    yield
    left = [task for task in asyncio.all_tasks() - before if not task.done() and task.get_name() != ENDPOINT_TASK]
    names = ", ".join(f"{task.get_name()} ({getattr(task.get_coro(), '__qualname__', '')})" for task in left)
    for task in left:
        task.cancel()
    expect(not left, f"{what} leaves tasks running: {names}", "await or cancel every task that it starts, in `finally`")
