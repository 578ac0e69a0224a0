"""Drivers in processes of their own: what is left when they are killed or interrupted; and several machines."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

WAITING = """
import asyncio, sys
from miles_core import BuildContext, ComponentRef
from miles_plugin_ray.options import RayOptions
from miles_plugin_ray.runtime import RayRuntime
async def main():
    options = dict(address=sys.argv[1]) if sys.argv[1:] else dict(cpus=2, object_store_mib=80)
    runtime = RayRuntime(RayOptions(**options, start_seconds=180), BuildContext(1, "runtime"))
    ref = ComponentRef("engine", "thing", "thing_module:Thing", "miles_core:NoOptions", {}, "", "")
    handle = await runtime.start(ref, BuildContext(1, "thing-0"))
    hanging = asyncio.create_task(handle.call("hang"))
    await asyncio.sleep(0.1)
    print(handle.pid, flush=True)
    await asyncio.sleep(120)
asyncio.run(main())
"""

TWO_MACHINES = """
import asyncio, json, subprocess, sys, time
from pathlib import Path
from miles_core import BuildContext, ComponentRef, RequestError
from miles_plugin_ray.options import RayOptions
from miles_plugin_ray.runtime import RayRuntime
from ray.cluster_utils import Cluster

DRIVER = %r
ONE = dict(num_cpus=1, object_store_memory=80 << 20, include_dashboard=False)
NONE = "miles_core:NoOptions"
MEMORY = ComponentRef("transport", "shared-memory", "miles_core.weights.shared_memory:SharedMemoryTransport", NONE, {},
                      "", "", capabilities=frozenset({"one-machine"}))
STORE = ComponentRef("transport", "ray-object-store", "miles_plugin_ray.object_store:ObjectStoreTransport",
                     "miles_plugin_ray.options:ObjectStoreOptions", {}, "", "")

def part(kind, transport):
    ref = ComponentRef(kind, kind, f"ends_module:{kind.title()}", NONE, {}, "", "")
    return ref, BuildContext(1, kind, parts={"transport": transport})

async def main(cluster):
    options = dict(address=cluster.address, start_seconds=4)
    packed = RayRuntime(RayOptions(**options), BuildContext(1, "runtime"))
    try:
        await asyncio.gather(*(packed.start(*part(kind, MEMORY)) for kind in ("trainer", "engine")))
    except RequestError as error:
        print(json.dumps({"refused": str(error)}))
    await packed.close()
    options["start_seconds"] = 120
    runtime = RayRuntime(RayOptions(**options, placement="spread"), BuildContext(1, "runtime"))
    trainer, engine = await asyncio.gather(*(runtime.start(*part(kind, STORE)) for kind in ("trainer", "engine")))
    delivery = await trainer.call("send", 7)
    received = await engine.call("receive", delivery)
    await trainer.call("release", 7)
    nodes = [handle._arrival.node for handle in (trainer, engine)]
    print(json.dumps({"nodes": nodes, "received": received}))
    await runtime.close()

def abandon(address):
    # Kill a driver that joined; print how long its worker lived on.
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, address], stdout=subprocess.PIPE, text=True)
    worker = int(driver.stdout.readline())
    driver.kill()
    killed = time.monotonic()
    while Path(f"/proc/{worker}").exists() and time.monotonic() < killed + 60:
        time.sleep(0.05)
    driver.communicate()
    print(json.dumps({"lived_on": time.monotonic() - killed}))

cluster = Cluster(initialize_head=True, head_node_args=ONE)
try:
    cluster.add_node(**ONE)
    asyncio.run(main(cluster))
    abandon(cluster.address)
finally:
    cluster.shutdown()
"""

ENDS = """
import hashlib
import numpy as np
from miles_core import TensorInfo, WireTensor

class Trainer:
    def __init__(self, options, context):
        self.transport = context.part("transport")
    def send(self, version):
        data = np.random.default_rng(1).integers(0, 256, 8_000_000, np.uint8)
        return self.transport.send(version, [WireTensor(TensorInfo("w", (8_000_000,), "uint8"), data)])
    def release(self, version):
        self.transport.release(version)

class Engine:
    def __init__(self, options, context):
        self.transport = context.part("transport")
    def receive(self, delivery):
        return [hashlib.sha256(wire.data).hexdigest() for wire in self.transport.receive(delivery)]
"""

RECIPE = """
miles: 1
plugins: [toy]
model: {use: toy}
data: {use: toy}
schedule: {use: sync, groups_per_step: 2, group_size: 2}
generator: {use: single-turn, sampling: {max_new_tokens: 20}}
rewards: [{use: match}]
engine: {use: toy, seconds_per_token: 0.05}
trainer: {use: toy}
advantage: {use: toy}
loss: {use: toy}
steps: 1000
"""

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a process that can import what lies in the folder; it is killed if it is left."""
    started: list[subprocess.Popen[str]] = []

    def process(*arguments: str) -> subprocess.Popen[str]:
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])}
        pipe = subprocess.PIPE
        command = [sys.executable, *arguments]
        started.append(subprocess.Popen(command, stdout=pipe, stderr=pipe, text=True, cwd=tmp_path, env=environment))
        return started[-1]

    yield process
    for each in started:
        each.kill()
        each.communicate()


def test_nothing_is_left_of_a_driver_that_is_killed(start: Start, thing: Any, tmp_path: Path):
    driver = start("-c", WAITING)
    assert driver.stdout is not None
    worker = int(driver.stdout.readline())
    head = head_of(driver)
    assert worker in session(head) and len(session(head)) > 3
    driver.kill()
    gone(head)


def test_an_interrupted_run_ends_its_cluster(start: Start, tmp_path: Path):
    (tmp_path / "recipe.yaml").write_text(RECIPE)

    def metrics() -> list[Path]:
        return list(tmp_path.glob("runs/*/metrics.jsonl"))

    small = [f"--set=runtime.{key}" for key in ("use=ray", "cpus=2", "object_store_mib=80", "start_seconds=180")]
    driver = start("-m", "miles_core.cli.entry", "run", "recipe.yaml", "--plugin", "ray", *small)
    soon(lambda: driver.poll() is not None or '"step":' in "".join(each.read_text() for each in metrics()))
    assert driver.poll() is None, driver.communicate()
    head = head_of(driver)
    driver.send_signal(signal.SIGTERM)  # harder than SIGINT: Ray has a handler of its own
    errors = driver.communicate(timeout=60)[1]
    assert driver.returncode == 130, errors
    assert json.loads(next(tmp_path.glob("runs/*/run.json")).read_text())["state"] == "interrupted"
    gone(head)


def test_several_machines(start: Start, thing: Any, tmp_path: Path):
    """Two nodes of one machine have object stores of their own, as two machines have."""
    (tmp_path / "ends_module.py").write_text(ENDS)
    output, errors = start("-c", TWO_MACHINES % WAITING).communicate(timeout=240)
    lines = [json.loads(line) for line in output.splitlines() if line.startswith("{")]
    assert len(lines) == 3, errors
    refused, done, abandoned = lines
    assert abandoned["lived_on"] < 30
    assert "within 4 s: they ask for 1 CPU + 1 CPU on one machine" in refused["refused"]
    assert "machine 1: 1 CPU; machine 2: 1 CPU" in refused["refused"]
    assert "ray-object-store" in refused["refused"]
    assert len(set(done["nodes"])) == 2
    (digest,) = done["received"]
    assert digest == sha256(np.random.default_rng(1).integers(0, 256, 8_000_000, np.uint8)).hexdigest()


def head_of(driver: subprocess.Popen[str]) -> int:
    """The process that owns the driver's cluster: the leader of a session of its own."""
    lists = [file.read_text() for file in Path(f"/proc/{driver.pid}/task").glob("*/children")]
    children = [int(pid) for text in lists for pid in text.split()]
    (head,) = [pid for pid in children if session(pid)]
    return head


def session(leader: int) -> set[int]:
    """Living processes of a session."""
    found = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of = stat.read_text().rpartition(")")[2].split()[:4]
        except (FileNotFoundError, ProcessLookupError):
            continue
        if int(of) == leader and state != "Z":
            found.add(int(stat.parent.name))
    return found


def gone(head: int) -> None:
    soon(lambda: not session(head))


def soon(condition: Callable[[], object], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.1)
