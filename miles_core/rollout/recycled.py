"""Tasks that come back: a data source in which discarded draws are drawn again before new ones."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import Any

from miles_core.contracts.rollout import Data, Draw
from miles_core.types.task import Task


class RecyclingData:
    """`contracts.rollout.Data` over another one. A draw that comes back keeps its number, and so its randomness, unless
    trajectories of it were made again: it then gets noise that it never had."""

    def __init__(self, data: Data) -> None:
        self.inner = data
        self._returned: deque[Draw] = deque()

    def take_back(self, draw: Draw) -> None:
        """Draw this one again, next."""
        self._returned.append(draw)

    def draw(self) -> Draw | None:
        return self._returned.popleft() if self._returned else self.inner.draw()

    def held_out(self, count: int) -> list[Task]:
        return self.inner.held_out(count)

    def size(self) -> int | None:
        return self.inner.size()

    def state(self) -> Mapping[str, Any]:
        """That of the inner source, beside `recycled` when something came back."""
        state = self.inner.state()
        if not self._returned:
            return state
        recycled = [
            {"draw": draw.draw, "task": draw.task.to_data(), **({"remade": draw.remade} if draw.remade else {})}
            for draw in self._returned
        ]
        return {"inner": dict(state), "recycled": recycled}

    def restore(self, state: Mapping[str, Any]) -> None:
        if "recycled" not in state:
            self._returned.clear()
            self.inner.restore(state)
            return
        self.inner.restore(state["inner"])
        self._returned = deque(
            Draw(Task.from_data(each["task"]), each["draw"], each.get("remade", 0)) for each in state["recycled"]
        )
