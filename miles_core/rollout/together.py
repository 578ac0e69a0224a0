"""Running several coroutines together: the first failure cancels the others and is raised as itself."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

Result = TypeVar("Result")


def is_our_end(error: BaseException) -> bool:
    """Whether an exception caught from plugin code is not the plugin's: Ctrl-C, or the cancelling of this very task.

    A plugin may raise anything, SystemExit and a CancelledError of its own included.
    """
    if isinstance(error, asyncio.CancelledError):
        task = asyncio.current_task()
        return task is not None and task.cancelling() > 0
    return isinstance(error, KeyboardInterrupt)


async def together(coroutines: Iterable[Coroutine[Any, Any, Result]]) -> list[Result]:
    """The results in order. Nothing is left running when this returns or raises."""
    try:
        async with asyncio.TaskGroup() as tasks:
            running = [tasks.create_task(coroutine) for coroutine in coroutines]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from failures.exceptions[0].__cause__
    return [task.result() for task in running]
