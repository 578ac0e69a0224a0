"""The `saved` rollout: groups that an earlier run kept, in the order in which it made them. No engine is asked."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from miles_core.contracts.component import BuildContext
from miles_core.contracts.options import Options
from miles_core.contracts.rollout import RolloutContext
from miles_core.errors import RequestError
from miles_core.observe.trajectories import read_groups
from miles_core.types.trajectory import Disposition, Group

KEPT = frozenset({Disposition.TRAINED, Disposition.BUFFERED, Disposition.SURPLUS})


class SavedOptions(Options):
    """Which run."""

    run: Path = Field(description="folder of a run, or its `trajectories` folder")
    rescore: bool = Field(default=False, description="score again with this recipe's rewards")


class SavedRollout:
    """See `contracts.rollout.Rollout`. Ends when the saved groups do."""

    def __init__(self, options: SavedOptions, context: BuildContext) -> None:
        folder = options.run / "trajectories" if (options.run / "trajectories").is_dir() else options.run
        if not folder.is_dir():
            raise RequestError(f"no run at {options.run}", mend="give the folder of a run that saved trajectories")
        self._folder = folder
        self._rescore = options.rescore
        self._done = 0
        self._granted = 0
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self, context: RolloutContext) -> None:
        self._context = context
        self._task = asyncio.create_task(self._run(), name="saved rollout")

    def grant(self, groups: int) -> None:
        self._granted += groups
        self._idle.clear()
        self._wake.set()

    async def drain(self) -> None:
        await self._idle.wait()

    def state(self) -> Mapping[str, Any]:
        """`done` groups were put; `granted` ones were not yet, left out when there are none."""
        return {"done": self._done, "granted": self._granted} if self._granted else {"done": self._done}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._done = state["done"]
        self._granted = state.get("granted", 0)

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        buffer = self._context.buffer
        try:
            for place, group in enumerate(self._groups()):
                if place < self._done:
                    continue
                while not self._granted:
                    self._idle.set()
                    await self._woken()
                verdict = await buffer.put(await self._context.score(group) if self._rescore else group)
                self._done = place + 1
                self._granted -= verdict.keep
            while True:  # a group that turns out to be stale asks for another one, and there is none
                buffer.end()
                self._idle.set()
                await self._woken()
        except Exception as error:  # the driver gets it from the buffer, where it waits
            buffer.end(error)
            self._idle.set()

    async def _woken(self) -> None:
        self._wake.clear()
        await self._wake.wait()

    def _groups(self) -> Iterator[Group]:
        """Training groups; those of evaluations and those that were thrown away stay behind."""
        for _, group, dispositions in read_groups(self._folder):
            kept = tuple(t for t in group.trajectories if dispositions[t.id] in KEPT)
            if kept:
                yield group.replacing(kept)
