"""Running the event loop from plain code, so that Ctrl-C and SIGTERM end it cleanly."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from miles_core.errors import PluginError

Result = TypeVar("Result")


def wait_for(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a coroutine to its end. SIGTERM ends it like Ctrl-C. Inside a running event loop (a notebook), it runs in a
    thread of its own."""
    if not _in_a_loop():
        return _run(work)
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(_run, work).result()


def _in_a_loop() -> bool:
    """Asked apart, so that its exception is no context of what fails later."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _run(work: Coroutine[Any, Any, Result]) -> Result:
    try:
        return asyncio.run(_interruptible(work))
    except SystemExit as error:  # nothing of ours raises it inside the loop
        raise PluginError(
            f"a plugin called sys.exit({error.code!r}) in the driver", mend="let it raise an exception that says why"
        ) from error


async def _interruptible(work: Coroutine[Any, Any, Result]) -> Result:
    if threading.current_thread() is not threading.main_thread():
        return await work
    task = asyncio.ensure_future(work)
    terminated = False

    def terminate() -> None:
        nonlocal terminated
        terminated = True
        task.cancel()

    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, terminate)
    try:
        return await task
    except asyncio.CancelledError:
        if terminated:
            raise KeyboardInterrupt from None
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        raise
    finally:
        asyncio.get_running_loop().remove_signal_handler(signal.SIGTERM)
