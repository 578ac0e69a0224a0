"""One small cluster of our own for the whole session, and a component to start in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import ray
from miles_plugin_ray import connection as connections
from miles_plugin_ray.connection import Connection
from miles_plugin_ray.options import RayOptions
from miles_plugin_ray.own_cluster import Size
from miles_plugin_ray.runtime import RayRuntime

from miles_core import BuildContext, ComponentRef

THING = """
import asyncio, os, sys, time
import numpy as np
from miles_core import RunError

def refuse(): raise ValueError("not here")

class Unreadable:
    def __reduce__(self): return refuse, ()

class Thing:
    def __init__(self, options, context):
        self.name, self.admitted, self.cancelled = context.name, 0, 0
        self.weights = np.zeros(100_000)
        print("built", self.name)
    def pid(self): return os.getpid()
    def surroundings(self): return os.getcwd(), os.environ.get("WORD"), "ray" in os.environ.get("PYTHONPATH", "")
    def add(self, a, b): return a + b
    def fail(self): raise RunError("it broke", where="here", mend="so")
    def leave(self): raise SystemExit(3)
    def unreadable(self): return Unreadable()
    def unsendable(self): return lambda: 1
    def double(self, array):
        array *= 2
        return array
    async def show(self): return self.weights
    async def change(self): self.weights += 1
    def say(self, text): print(text)
    def hang(self): time.sleep(60)
    async def together(self):
        self.admitted += 1
        await asyncio.sleep(0)
        return self.admitted
    async def wait(self):
        try: await asyncio.sleep(60)
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
    async def cancellations(self): return self.cancelled
"""


def _forget_another() -> None:
    """A transport that was tried earlier in this process keeps its cluster, of another size, until the process ends."""
    left = connections._shared
    if left is not None:
        ray.shutdown()
        if left.own is not None:
            left.own.close()
        connections._shared = None


@pytest.fixture(scope="session")
def cluster() -> Iterator[Connection]:
    """Runtimes without an address share it, as long as it is open."""
    _forget_another()
    connection = Connection(None, Size(cpus=2, object_store_mib=80), seconds=180)
    yield connection
    connection.close()


@pytest.fixture
def thing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ComponentRef:
    """Research code beside a recipe: importable in the driver alone."""
    (tmp_path / "thing_module.py").write_text(THING)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return ComponentRef("engine", "thing", "thing_module:Thing", "miles_core:NoOptions", {}, "", "")


@pytest.fixture
def make(cluster: Connection, tmp_path: Path) -> Callable[..., RayRuntime]:
    """A runtime of small workers, with these options beside."""

    def runtime(**options: Any) -> RayRuntime:
        small = {"cpus_per_engine": 0.5, "start_seconds": 120, **options}
        return RayRuntime(RayOptions.model_validate(small), BuildContext(1, "runtime", tmp_path))

    return runtime


@pytest.fixture
def runtime(make: Callable[..., RayRuntime]) -> RayRuntime:
    return make()
