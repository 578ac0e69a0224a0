"""The local runtime with real child processes: calls, failures, deaths, and nothing left behind."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from miles_core import BuildContext, ComponentRef, PluginError, RunError, WorkerDied
from miles_core.runtime.in_process import InProcessRuntime
from miles_core.runtime.local import LocalOptions, LocalRuntime

WORKER = """
import asyncio, os, time
from pathlib import Path
from miles_core import RunError

def refuse(): raise ValueError("not here")
class Unreadable:
    def __reduce__(self): return refuse, ()

class Thing:
    def __init__(self, options, context):
        self.name = context.name
    def pid(self): return os.getpid()
    def add(self, a, b): return a + b
    def fail(self): raise RunError("it broke", where="here", mend="so")
    def odd(self):
        class Local(Exception): pass
        raise Local("does not pickle")
    def unreadable(self): return Unreadable()
    def unsendable(self): return lambda: 1
    def die(self): print("last words", flush=True); os._exit(7)
    def hang(self): time.sleep(60)
    async def slow(self): await asyncio.sleep(60)
    async def now(self): return self.name
    def close(self): Path(os.environ["CLOSED"]).write_text("closed") if "CLOSED" in os.environ else None
def refuses(options, context): raise SystemExit(0)
"""


@pytest.fixture
def thing(tmp_path, monkeypatch):
    (tmp_path / "thing_module.py").write_text(WORKER)
    (tmp_path / "thing_dist-1.0.dist-info").mkdir()
    (tmp_path / "thing_dist-1.0.dist-info" / "METADATA").write_text("Name: thing-dist\nVersion: 1.0\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    return ComponentRef(
        "engine", "thing", "thing_module:Thing", "miles_core.contracts.options:NoOptions", {}, "thing-dist", "1.0"
    )


def context(name: str = "thing-0", folder: Path | None = None) -> BuildContext:
    return BuildContext(1, name, folder)


async def test_calls_cross_the_process_border(thing):
    runtime = LocalRuntime(LocalOptions(), context())
    handle = await runtime.start(thing, context())
    assert await handle.call("add", 2, 3) == 5
    assert await handle.call("now") == "thing-0"
    assert await handle.call("pid") == handle.pid != os.getpid()
    assert await asyncio.gather(*(handle.call("add", i, i) for i in range(50))) == [2 * i for i in range(50)]
    await runtime.close()
    assert not handle.alive


async def test_an_exception_comes_back_as_itself(thing):
    runtime = LocalRuntime(LocalOptions(), context())
    handle = await runtime.start(thing, context())
    with pytest.raises(RunError, match="it broke") as caught:
        await handle.call("fail")
    assert caught.value.problems[0].mend == "so"
    with pytest.raises(RunError, match="Local: does not pickle"):
        await handle.call("odd")
    with pytest.raises(RunError, match="no method"):
        await handle.call("_private")
    assert await handle.call("add", 1, 1) == 2
    await runtime.close()


async def test_what_cannot_travel_fails_alone(thing):
    runtime = LocalRuntime(LocalOptions(), context())
    handle = await runtime.start(thing, context())
    calls = (handle.call("add", 1, 1), handle.call("add", lambda: 1, 1), handle.call("unsendable"), handle.call("now"))
    two, argument, result, name = await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 10)
    assert (two, name) == (2, "thing-0")
    assert "lambda" in str(argument)
    assert isinstance(result, RunError) and "returned function, which cannot travel" in str(result)
    with pytest.raises(WorkerDied, match="cannot be read here"):
        await asyncio.wait_for(handle.call("unreadable"), 10)
    await runtime.close()


async def test_a_death_names_the_worker_and_its_last_words(thing, tmp_path):
    runtime = LocalRuntime(LocalOptions(), context(folder=tmp_path))
    handle = await runtime.start(thing, context(folder=tmp_path))
    with pytest.raises(WorkerDied, match=r"(?s)thing-0.*exit status 7.*last words"):
        await handle.call("die")
    with pytest.raises(WorkerDied):
        await handle.call("add", 1, 1)
    await runtime.close()


async def test_a_kill_ends_every_waiting_call(thing):
    runtime = LocalRuntime(LocalOptions(), context())
    handle = await runtime.start(thing, context())
    waiting = [asyncio.create_task(handle.call("slow")), asyncio.create_task(handle.call("hang"))]
    await asyncio.sleep(0.2)
    os.kill(handle.pid, signal.SIGKILL)
    for error in await asyncio.gather(*waiting, return_exceptions=True):
        assert isinstance(error, WorkerDied)
        assert "signal 9" in str(error)
    await runtime.close()


async def test_a_component_that_exits_while_it_is_built_is_the_plugins_fault(thing):
    from dataclasses import replace

    runtime = LocalRuntime(LocalOptions(), context())
    with pytest.raises((PluginError, SystemExit, RunError)):
        await runtime.start(replace(thing, factory="thing_module:refuses"), context())
    with pytest.raises(PluginError, match=r"thing-dist 1\.0"):
        await runtime.start(replace(thing, factory="thing_module:Missing"), context("thing-1"))
    await runtime.close()


async def test_close_lets_the_component_close_and_kills_what_hangs(thing, tmp_path, monkeypatch):
    monkeypatch.setenv("CLOSED", str(tmp_path / "closed"))
    runtime = LocalRuntime(LocalOptions(grace_seconds=1.0), context())
    handle = await runtime.start(thing, context())
    await runtime.close()
    assert (tmp_path / "closed").read_text() == "closed"
    monkeypatch.delenv("CLOSED")
    handle = await runtime.start(thing, context())
    hanging = asyncio.create_task(handle.call("hang"))
    await asyncio.sleep(0.2)
    began = time.monotonic()
    await runtime.close()
    assert time.monotonic() - began < 5
    with pytest.raises(WorkerDied):
        await hanging


async def test_whoever_does_not_wait_for_the_end_leaves_no_worker_that_cannot_hear(thing):
    runtime = LocalRuntime(LocalOptions(grace_seconds=60), context())
    pid = await (await runtime.start(thing, context())).call("pid")
    os.kill(pid, signal.SIGSTOP)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(runtime.close(), 0.2)
    for _ in range(200):
        if not Path(f"/proc/{pid}").exists():
            break
        await asyncio.sleep(0.02)
    assert not Path(f"/proc/{pid}").exists()


def test_workers_end_when_their_driver_is_killed(thing, tmp_path):
    driver = textwrap.dedent(
        f"""
        import asyncio, sys
        sys.path.insert(0, {str(tmp_path)!r})
        from miles_core import BuildContext, ComponentRef
        from miles_core.runtime.local import LocalOptions, LocalRuntime
        async def main():
            options = "miles_core.contracts.options:NoOptions"
            ref = ComponentRef("engine", "thing", "thing_module:Thing", options, {{}}, "", "")
            handle = await LocalRuntime(LocalOptions(), BuildContext(1, "r")).start(ref, BuildContext(1, "t"))
            asyncio.create_task(handle.call("hang"))
            await asyncio.sleep(0.1)
            print(handle.pid, flush=True)
            await asyncio.sleep(60)
        asyncio.run(main())
        """
    )
    process = subprocess.Popen([sys.executable, "-c", driver], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    worker = int(process.stdout.readline())
    process.kill()
    process.wait()
    process.stdout.close()
    deadline = time.monotonic() + 10
    while _alive(worker) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not _alive(worker)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


async def test_the_in_process_runtime_is_the_same_handle(thing):
    from miles_core import NoOptions

    runtime = InProcessRuntime(NoOptions(), context())
    handle = await runtime.start(thing, context())
    assert await handle.call("add", 2, 3) == 5
    assert await handle.call("pid") == os.getpid()
    await runtime.close()
    with pytest.raises(WorkerDied):
        await handle.call("add", 1, 1)
