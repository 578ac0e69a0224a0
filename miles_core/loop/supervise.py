"""A driver in a worker, as its command sees it: started, watched, shown, and started again when it dies.

A death is the end of the driver's process that nobody asked for: a SIGKILL, a lost machine, no memory. It is mended
from the latest checkpoint, by what a driver does at any start. What the driver raises is no death: it comes back as it
would from a driver in this process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from miles_core.contracts.component import BuildContext
from miles_core.contracts.observing import Handle, Runtime
from miles_core.errors import WorkerDied
from miles_core.loop.order import NAME, Ended, Order, hosted_driver
from miles_core.loop.record import Listener, Recorder
from miles_core.loop.shape import shaped
from miles_core.observe import jsonl
from miles_core.observe.folder import RunFolder
from miles_core.recipe.resolved import Plan
from miles_core.runtime.bounded import in_time
from miles_core.runtime.life import delay

GONE_SECONDS = 5.0
"""By then the workers of a driver that died are gone: nobody waits for their end, and they may hold what the next ones
need, such as a GPU's memory. The recipe's `faults.restart_delay` comes on top, doubled for each further restart."""

HEARD_SECONDS = 5.0
"""How long a driver that is interrupted may not hear it; then it is killed."""

ENDING_SECONDS = 60.0
"""How long an interrupted driver may take to end what it does; then it is killed."""


async def supervise(plan: Plan, folder: RunFolder, view: Listener, order: Order) -> Ended:
    """Have a worker drive the run to its end. Raises WorkerDied when it died more often than the recipe allows, and
    what the runtime raises; CancelledError when it was cancelled and the driver did not say how it ended."""
    context = BuildContext(plan.seed, f"{plan.runtime.kind}-{plan.runtime.name}", folder.path.resolve())
    runtime: Runtime = shaped(plan.runtime, plan.runtime.build(context))
    restarts: tuple[Mapping[str, Any], ...] = ()
    try:
        while True:
            try:
                return await _driver(runtime, plan, folder, view, replace(order, restarts=restarts))
            except WorkerDied as death:
                if not plan.driver_restarts:
                    raise
                if len(restarts) >= plan.driver_restarts:
                    raise _too_often(death, len(restarts)) from death
                restarts = (*restarts, _told(death, len(restarts) + 1, plan.driver_restarts))
            seconds = GONE_SECONDS + delay(len(restarts) - 1, plan.faults.restart_delay)
            view.on("driver_died", {**restarts[-1], "after": seconds})
            await asyncio.sleep(seconds)
    finally:
        await runtime.close()


async def _driver(runtime: Runtime, plan: Plan, folder: RunFolder, view: Listener, order: Order) -> Ended:
    """One driver, from its start to its end."""
    starting = runtime.start(hosted_driver(), BuildContext(plan.seed, NAME, folder.path.resolve()))
    handle = await in_time(starting, NAME, plan.faults.wait_seconds)
    try:
        running = asyncio.create_task(handle.call("run", order), name="the driver's run")
        showing = asyncio.create_task(_show(handle, view), name="the driver's events")
        try:
            ended: Ended = await asyncio.shield(running)
        except asyncio.CancelledError:
            ended = await _interrupt(handle, running)
        finally:
            showing.cancel()
            await asyncio.gather(showing, return_exceptions=True)
        await _show_rest(handle, view)
        return ended
    finally:
        await handle.close()


async def _interrupt(handle: Handle, running: asyncio.Task[Ended]) -> Ended:
    """How the driver ended that was told to. Raises CancelledError when it does not in time, or dies of it."""
    try:
        await asyncio.wait_for(handle.call("interrupt"), HEARD_SECONDS)
        return await asyncio.wait_for(running, ENDING_SECONDS)
    except (TimeoutError, WorkerDied):
        raise asyncio.CancelledError from None


async def _show(handle: Handle, view: Listener) -> None:
    while True:
        for name, facts in await handle.call("events"):
            view.on(name, facts)


async def _show_rest(handle: Handle, view: Listener) -> None:
    """What happened between the last question and the end."""
    with contextlib.suppress(WorkerDied):
        for name, facts in await handle.call("events"):
            view.on(name, facts)


def tell_restarts(recorder: Recorder, order: Order, step: int) -> None:
    """In the new driver: have every restart on record that is not yet, because the one after it died too soon."""
    known = {event["died"] for event in jsonl.read(recorder.folder.events) if event["event"] == "driver_restarted"}
    for restart in order.restarts:
        if restart["died"] not in known:
            recorder.emit("driver_restarted", **restart, step=step)


def _told(death: WorkerDied, number: int, limit: int) -> Mapping[str, Any]:
    """The facts of the restart that follows."""
    died = datetime.now(UTC).isoformat(timespec="milliseconds")
    return {"restart": number, "of": limit, "died": died, "why": death.problems[0].what}


def _too_often(death: WorkerDied, restarts: int) -> WorkerDied:
    times = f"the driver was started again {restarts} times and died again: "
    first = death.problems[0]
    told = WorkerDied([replace(first, what=times + first.what), *death.problems[1:]])
    told.origin = death.origin
    return told
