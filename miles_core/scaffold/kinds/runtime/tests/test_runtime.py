"""Calls, what they raise, the end of a worker, and the times."""

import asyncio
from pathlib import Path

import pytest
from miles_core import BuildContext, ComponentRef, WorkerDied

from miles_plugin_xyz.options import XyzOptions
from miles_plugin_xyz.runtime import XyzRuntime


class Adder:
    """A component with a coroutine and a plain method."""

    def __init__(self, options: object, context: BuildContext) -> None:
        self.name = context.name

    async def add(self, a: int, b: int) -> int:
        return a + b

    def fail(self) -> None:
        raise ValueError(f"{self.name} cannot")


ADDER = ComponentRef("engine", "adder", f"{__name__}:Adder", "miles_core:NoOptions", {}, "", "")


def test_a_whole_life(tmp_path: Path) -> None:
    async def story() -> None:
        options = XyzOptions()
        runtime = XyzRuntime(options, BuildContext(seed=1, name="runtime", folder=tmp_path))
        handle = await runtime.start(ADDER, BuildContext(seed=1, name="engine-0", folder=tmp_path))
        assert (handle.name, handle.alive) == ("engine-0", True)
        assert await handle.call("add", 1, 2) == 3
        assert await handle.call("add", 3, 4) == 7
        with pytest.raises(ValueError, match="engine-0 cannot"):
            await handle.call("fail")
        await runtime.close()
        await runtime.close()
        assert not handle.alive
        with pytest.raises(WorkerDied, match="engine-0"):
            await handle.call("add", 1, 2)

    asyncio.run(story())
    rows = [line.split(",")[:3] for line in (tmp_path / "calls.csv").read_text().splitlines()]
    assert rows == [["worker", "method", "calls"], ["engine-0", "add", "2"], ["engine-0", "fail", "1"]]
