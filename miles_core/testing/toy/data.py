"""Tasks for the toy ring: which of two digits is larger?"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from miles_core.contracts.component import BuildContext
from miles_core.contracts.options import NoOptions
from miles_core.contracts.rollout import Draw
from miles_core.types.task import Task

_ALL = tuple(Task(f"max-{a}{b}", f"max {a} {b} =", answer=str(max(a, b))) for a in range(10) for b in range(10))
HELD_OUT = _ALL[::5]
TASKS = tuple(task for task in _ALL if task not in HELD_OUT)


class ToyData:
    """See `contracts.rollout.Data`. Every pair of digits, endlessly, in another order in each epoch; a fifth of them is
    held out."""

    def __init__(self, options: NoOptions, context: BuildContext) -> None:
        self._seed = context.seed
        self._position = 0

    def draw(self) -> Draw:
        epoch, place = divmod(self._position, len(TASKS))
        self._position += 1
        order = random.Random(f"{self._seed}/toy-data/{epoch}").sample(TASKS, len(TASKS))
        return Draw(order[place], epoch)

    def held_out(self, count: int) -> list[Task]:
        return list(HELD_OUT[:count])

    def size(self) -> None:
        return None

    def state(self) -> Mapping[str, Any]:
        return {"position": self._position}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._position = state["position"]
