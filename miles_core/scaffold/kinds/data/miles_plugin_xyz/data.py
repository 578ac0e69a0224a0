"""Tasks of counting in equal steps."""

import random
from collections.abc import Mapping
from typing import Any

from miles_core import BuildContext, Draw, Task

from miles_plugin_xyz.options import XyzOptions


class XyzData:
    """Each task once in an epoch, in another order in the next. See `miles_core.Data`."""

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        tasks = [_task(start, options.step) for start in range(options.largest)]
        self._held_out = tasks[9::10]
        self._tasks = [task for task in tasks if task not in self._held_out]
        self._epochs = options.epochs
        self._seed = context.seed
        self._position = 0

    def draw(self) -> Draw | None:
        size = self.size()
        if size is not None and self._position >= size:
            return None
        epoch, place = divmod(self._position, len(self._tasks))
        self._position += 1
        return Draw(self._order(epoch)[place], draw=epoch)

    def held_out(self, count: int) -> list[Task]:
        return self._held_out[:count]

    def size(self) -> int | None:
        return None if self._epochs is None else self._epochs * len(self._tasks)

    def state(self) -> Mapping[str, Any]:
        return {"position": self._position}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._position = int(state["position"])

    def _order(self, epoch: int) -> list[Task]:
        return random.Random(f"{self._seed}/counting/{epoch}").sample(self._tasks, len(self._tasks))


def _task(start: int, step: int) -> Task:
    """Ids are the same in every run: randomness is derived from them."""
    shown = [start, start + step, start + 2 * step]
    return Task(f"count-{start}-{step}", " ".join(map(str, shown)), answer=str(start + 3 * step))
