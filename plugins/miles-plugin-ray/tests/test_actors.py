"""The runtime with real actors: calls, failures, deaths, placement."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from miles_plugin_ray.connection import Connection
from miles_plugin_ray.own_cluster import Size
from miles_plugin_ray.runtime import RayRuntime

from miles_core import BuildContext, ComponentRef, PluginError, RequestError, RunError, WorkerDied

Make = Callable[..., RayRuntime]


async def test_calls_cross_and_what_is_raised_is_raised_here(runtime: RayRuntime, thing: ComponentRef, tmp_path: Path):
    handle = await runtime.start(thing, BuildContext(1, "thing-0", tmp_path))
    assert await handle.call("add", 2, 3) == 5
    assert await handle.call("pid") == handle.pid != os.getpid()
    assert await asyncio.gather(*(handle.call("add", i, i) for i in range(50))) == [2 * i for i in range(50)]
    with pytest.raises(RunError, match="it broke") as caught:
        await handle.call("fail")
    assert caught.value.problems[0].mend == "so" and "thing_module.py" in caught.value.origin
    with pytest.raises(RunError, match="SystemExit: 3"):
        await handle.call("leave")
    with pytest.raises(RunError, match="cannot travel"):
        await handle.call("unsendable")
    with pytest.raises(Exception, match="lambda"):
        await handle.call("add", lambda: 1, 1)
    with pytest.raises(RunError, match="no method"):
        await handle.call("_private")
    with pytest.raises(WorkerDied, match="cannot be read here: ValueError: not here"):
        await asyncio.wait_for(handle.call("unreadable"), 20)
    await runtime.close()
    await runtime.close()
    assert not handle.alive and not alive(handle.pid)
    with pytest.raises(WorkerDied):
        await handle.call("add", 1, 1)


async def test_calls_of_one_tick_are_admitted_together(runtime: RayRuntime, thing: ComponentRef, tmp_path: Path):
    handle = await runtime.start(thing, BuildContext(1, "thing-0", tmp_path))
    assert await asyncio.gather(*(handle.call("together") for _ in range(20))) == [20] * 20
    waiting = asyncio.ensure_future(handle.call("wait"))
    await asyncio.sleep(0.2)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    assert await handle.call("cancellations") == 1
    await runtime.close()


async def test_arrays_arrive_writable_and_as_they_were_when_sent(
    runtime: RayRuntime, thing: ComponentRef, tmp_path: Path
):
    handle = await runtime.start(thing, BuildContext(1, "thing-0", tmp_path))
    for size in (0, 3, 1_000_000):
        sent = np.arange(size, dtype=np.float32)
        back = await handle.call("double", sent)
        assert np.array_equal(back, 2 * np.arange(size)) and back.flags.writeable
        assert np.array_equal(sent, np.arange(size))
    shown, *_ = await asyncio.gather(handle.call("show"), *(handle.call("change") for _ in range(5)))
    assert len(set(shown)) == 1  # whole, from one moment
    await runtime.close()


async def test_workers_have_the_drivers_surroundings(make: Make, thing: ComponentRef, tmp_path: Path):
    runtime = make(environment={"WORD": "here"})
    handle = await runtime.start(thing, BuildContext(1, "thing-0", tmp_path))
    assert await handle.call("surroundings") == (str(tmp_path), "here", True)
    await handle.close()
    assert "built thing-0" in (tmp_path / "logs" / "thing-0.log").read_text()
    await runtime.close()


async def test_a_kill_is_told_with_the_last_words_and_the_place_is_used_again(
    runtime: RayRuntime, thing: ComponentRef, tmp_path: Path
):
    first, other = await asyncio.gather(
        *(runtime.start(replace(thing), BuildContext(1, name, tmp_path)) for name in ("engine-0", "engine-1"))
    )
    await first.call("say", "these are my last words")
    waiting = [asyncio.ensure_future(first.call(name)) for name in ("wait", "hang")]
    await asyncio.sleep(0.2)
    os.kill(first.pid, signal.SIGKILL)
    for error in await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 20):
        assert isinstance(error, WorkerDied)
        assert "engine-0" in str(error) and "these are my last words" in str(error)
    with pytest.raises(WorkerDied, match="engine-0"):
        await first.call("add", 1, 1)
    assert not first.alive and await other.call("add", 1, 1) == 2
    groups = len(runtime._places._groups)
    again = await runtime.start(thing, BuildContext(1, "engine-0", tmp_path))
    assert await again.call("add", 1, 1) == 2 and len(runtime._places._groups) == groups
    await runtime.close()


async def test_close_kills_what_hangs(make: Make, thing: ComponentRef, tmp_path: Path):
    runtime = make(grace_seconds=1)
    handle = await runtime.start(thing, BuildContext(1, "thing-0", tmp_path))
    hanging = asyncio.ensure_future(handle.call("hang"))
    await asyncio.sleep(0.2)
    began = time.monotonic()
    await runtime.close()
    assert time.monotonic() - began < 8 and not alive(handle.pid)
    with pytest.raises(WorkerDied):
        await hanging


async def test_what_cannot_be_built_is_the_plugins_fault(runtime: RayRuntime, thing: ComponentRef, tmp_path: Path):
    with pytest.raises(PluginError, match="thing_module:Missing"):
        await runtime.start(replace(thing, factory="thing_module:Missing"), BuildContext(1, "thing-0", tmp_path))
    with pytest.raises(PluginError, match=r"of numpy 0\.1, but \S+ is installed here"):
        old = replace(thing, distribution="numpy", version="0.1")
        await runtime.start(old, BuildContext(1, "thing-1", tmp_path))
    await runtime.close()


async def test_a_place_that_does_not_exist_is_refused_with_what_does(make: Make, thing: ComponentRef, tmp_path: Path):
    runtime = make(cpus_per_engine=64, gpus_per_engine=1)
    began = time.monotonic()
    with pytest.raises(RequestError, match=r"ask for 64 CPU, 1 GPU \+ 64 CPU, 1 GPU.*the cluster has machine 1: 2 CPU"):
        await asyncio.gather(*(runtime.start(thing, BuildContext(1, f"engine-{n}", tmp_path)) for n in range(2)))
    assert time.monotonic() - began < 10
    await runtime.close()


async def test_a_place_that_is_taken_is_waited_for_within_bounds(
    runtime: RayRuntime, make: Make, thing: ComponentRef, tmp_path: Path
):
    await runtime.start(thing, BuildContext(1, "engine-0", tmp_path))
    second = make(cpus_per_engine=2, start_seconds=2)
    with pytest.raises(RequestError, match=r"within 2 s: they ask for 2 CPU.*free now: 1\.5 CPU"):
        await second.start(thing, BuildContext(1, "engine-1", tmp_path))
    await second.close()
    await runtime.close()


async def test_one_process_uses_one_cluster_and_nobody_there_is_said_at_once(cluster: Connection, make: Make):
    with pytest.raises(RequestError, match=f"already uses the Ray cluster at {cluster.address}"):
        Connection("127.0.0.1:1", Size(1), 5)
    runtime = make(address="127.0.0.1:1")
    with pytest.raises(RequestError, match="already uses"):
        await runtime.start(
            ComponentRef("engine", "x", "x:y", "miles_core:NoOptions", {}, "", ""), BuildContext(1, "x")
        )
    await runtime.close()


def alive(pid: int) -> bool:
    """Whether the process lives; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False
