"""A runtime: builds components in processes, carries calls and errors across, and leaves no process behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from dataclasses import replace

from miles_core.contracts.component import BuildContext
from miles_core.contracts.observing import Handle, Runtime
from miles_core.errors import RequestError, WorkerDied
from miles_core.testing.kit.check import Grade, check, expect, inapplicable
from miles_core.testing.kit.living import cancelled, settle, soon
from miles_core.testing.kit.probe_component import FAILS_TO_BUILD, probe
from miles_core.testing.kit.processes import ended
from miles_core.testing.kit.subject import ComponentSubject

GRACE = 15.0
STARTING = 60.0


@check("runtime", Grade.GOLD, "a component is built by value, under its name, and started")
async def starts_components(subject: ComponentSubject) -> None:
    async with _runtime(subject) as runtime:
        handles = await asyncio.gather(*(_start(runtime, subject, name, word=name) for name in ("one", "two")))
        for handle, name in zip(handles, ("one", "two"), strict=True):
            expect(handle.name == name, f"the handle is named {handle.name!r}", "name it as its context says")
            expect(handle.alive, f"{name} is not alive", "a handle is alive until it is closed or its process ends")
            _, word, called, started = await handle.call("where")
            expect((word, called) == (name, name), f"built with {word!r} as {called!r}", "give options and context on")
            expect(started, "its start() was not awaited", "await start() before the handle is given out")


@check("runtime", Grade.GOLD, "calls carry values both ways, many at once, and what is raised is raised here")
async def calls_cross(subject: ComponentSubject) -> None:
    async with _runtime(subject) as runtime:
        handle = await _start(runtime, subject, "probe")
        values = [{"n": n, "bytes": bytes(n)} for n in range(16)]
        found = await asyncio.gather(*(handle.call("echo", value) for value in values))
        expect(found == values, "replies came to other callers", "pair each reply with its call")
        try:
            await handle.call("fail", "it broke")
        except RequestError as error:
            problem = error.problems[0]
            expect((problem.what, problem.where) == ("it broke", "the probe"), f"it says {error}", "carry it whole")
        except BaseException as error:
            expect(False, f"RequestError became {type(error).__name__}: {error}", "raise what the method raised")
        else:
            expect(False, "a method raised, and nothing came", "raise what the method raised")
        with contextlib.suppress(asyncio.CancelledError):
            waiting = asyncio.ensure_future(handle.call("wait"))
            await settle()
            await cancelled(waiting, "a call")
        expect(await handle.call("echo", 1) == 1, "after a cancelled call it answers no more", "forget that call alone")


@check("runtime", Grade.GOLD, "what fails to build is raised, and the others go on")
async def build_failures(subject: ComponentSubject) -> None:
    async with _runtime(subject) as runtime:
        good = await _start(runtime, subject, "good")
        try:
            await _start(runtime, subject, "bad", word=FAILS_TO_BUILD)
        except RequestError as error:
            expect("cannot be built" in str(error), f"it says {error}", "raise what the factory raised")
        else:
            expect(False, "a factory raised, and a handle was given out", "raise what the factory raised")
        expect(await good.call("echo", 2) == 2, "another component broke with it", "keep them apart")


@check("runtime", Grade.GOLD, "when a process dies, whoever waits for it gets WorkerDied with its name")
async def deaths(subject: ComponentSubject) -> None:
    async with _runtime(subject) as runtime:
        handle = await _start(runtime, subject, "mortal")
        if (await handle.call("where"))[0] == os.getpid():
            inapplicable("its components live in this very process")
        waiting = asyncio.ensure_future(handle.call("wait"))
        await settle()
        dying = asyncio.ensure_future(handle.call("die"))
        # The last one asks when it is dead: who asks while it dies may still be answered.
        for earlier in (dying, waiting, None):
            call = earlier or asyncio.ensure_future(handle.call("echo", 1))
            try:
                await soon(call, "a call to a dead process", "wake whoever waits when the process ends")
            except WorkerDied as error:
                expect("mortal" in str(error), f"it says {error}", "name the worker")
            else:
                expect(False, "a dead process answered", "raise WorkerDied")
        expect(not handle.alive, "the handle of a dead process is alive", "see that it ended")


@check("runtime", Grade.GOLD, "a component whose process died is started again under its name, and the others go on")
async def starts_again(subject: ComponentSubject) -> None:
    async with _runtime(subject) as runtime:
        handle, other = [await _start(runtime, subject, name) for name in ("mortal", "other")]
        first = (await handle.call("where"))[0]
        if first == os.getpid():
            inapplicable("its components live in this very process")
        kill = getattr(handle, "kill", None)
        dying = asyncio.ensure_future(handle.call("wait" if kill else "die"))
        await settle()
        if kill is not None:
            kill()
        with contextlib.suppress(WorkerDied):
            await soon(dying, "a call to a process that was killed", "raise WorkerDied in whoever waits")
        await handle.close()
        again = await _start(runtime, subject, "mortal")
        expect((await again.call("where"))[0] != first, "it is the process that died", "start another one")
        expect(await again.call("echo", 3) == 3, "it does not answer", "a name is free when its process has ended")
        expect(await other.call("echo", 4) == 4, "another component broke with it", "keep them apart")


@check("runtime", Grade.GOLD, "a driver in a worker starts workers by the same runtime, and they end when it dies")
async def hosts_a_driver(subject: ComponentSubject) -> None:
    async with _runtime(subject) as runtime:
        context = BuildContext(1, "driver", subject.folder)
        driver = await runtime.start(replace(probe(), kind="driver", name="driver"), context)
        own = (await driver.call("where"))[0]
        call = asyncio.ensure_future(driver.call("host", subject.ref(), subject.folder))
        try:
            worker = await asyncio.wait_for(call, STARTING)
        except Exception as error:
            what = f"in a worker it cannot be built, or starts nothing: {type(error).__name__}: {error}"
            expect(False, what, "let it be built again, with the same options, in a process that it started")
        if own == os.getpid():
            return
        with contextlib.suppress(WorkerDied):
            await soon(asyncio.ensure_future(driver.call("die")), "a call to a dead process", "raise WorkerDied")
        gone = await asyncio.to_thread(ended, worker, GRACE)
        expect(gone, "the driver is dead, and its worker lives on", "end a process whose driver is gone")


@check("runtime", Grade.GOLD, "close ends every process, and calls after it raise WorkerDied")
async def leaves_no_process(subject: ComponentSubject) -> None:
    async with _runtime(subject) as runtime:
        handles = [await _start(runtime, subject, name) for name in ("one", "two")]
        processes = {(await handle.call("where"))[0] for handle in handles} - {os.getpid()}
    left = [process for process in processes if not ended(process, GRACE)]
    expect(not left, f"processes live on after close: {left}", "wait until each has ended, and kill it after a while")
    try:
        await soon(handles[0].call("echo", 1), "a call after close", "raise WorkerDied")
    except WorkerDied:
        return
    expect(False, "a closed component answered", "raise WorkerDied")


@contextlib.asynccontextmanager
async def _runtime(subject: ComponentSubject) -> AsyncIterator[Runtime]:
    runtime: Runtime = subject.build()
    try:
        yield runtime
    finally:
        await asyncio.wait_for(runtime.close(), GRACE)


async def _start(runtime: Runtime, subject: ComponentSubject, name: str, word: str = "here") -> Handle:
    return await runtime.start(probe(word), BuildContext(1, name, subject.folder))
