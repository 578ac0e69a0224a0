"""A data source of two tasks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from miles_core.contracts.rollout import Draw
from miles_core.types.task import Task


class TwoTasks:
    """`contracts.rollout.Data`: two sums, drawn in turns for ever, or `epochs` times; two others are held out."""

    TASKS = (Task("sum-1", "1+2=", answer="3"), Task("sum-2", "2+2=", answer="4"))
    HELD_OUT = (Task("held-1", "3+4=", answer="7"), Task("held-2", "5+3=", answer="8"))

    def __init__(self, epochs: int | None = None) -> None:
        self._epochs = epochs
        self._position = 0

    def draw(self) -> Draw | None:
        if self._epochs is not None and self._position >= 2 * self._epochs:
            return None
        epoch, place = divmod(self._position, 2)
        self._position += 1
        return Draw(self.TASKS[place], epoch)

    def held_out(self, count: int) -> list[Task]:
        return list(self.HELD_OUT[:count])

    def size(self) -> int | None:
        return None if self._epochs is None else 2 * self._epochs

    def state(self) -> Mapping[str, Any]:
        return {"position": self._position}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._position = int(state["position"])
