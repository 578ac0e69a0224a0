"""The order in which tasks are drawn, and where a resumed run goes on."""

from __future__ import annotations

from collections.abc import Mapping
from random import Random
from typing import Any

from miles_core import BuildContext, Draw, RequestError, Task
from miles_plugin_reasoning_gym.options import DataOptions
from miles_plugin_reasoning_gym.splits import Splits


class ReasoningGymData:
    """Endless (or `epochs` long) tasks. Draws each training task once an epoch, in an order that the seed gives."""

    def __init__(self, options: DataOptions, context: BuildContext) -> None:
        self._options = options
        self._seed = context.seed if options.seed is None else options.seed
        self._splits = Splits(options, self._seed)
        self._position = 0
        self._order: tuple[int, list[int]] = (-1, [])

    def draw(self) -> Draw | None:
        """The next task. Raises RunError when a generator fails, RequestError when it has too few questions."""
        if self._position == self.size():
            return None
        epoch, place = divmod(self._position, self._options.size)
        task = self._splits.training_task(self._order_of(epoch)[place])
        self._position += 1
        return Draw(task, draw=epoch)

    def held_out(self, count: int) -> list[Task]:
        """The first `count` held-out tasks; fewer when the recipe or the generators have fewer distinct questions."""
        if self._options.held_out == 0:
            raise RequestError("there is no held-out split", where="data.held_out", mend="set held_out to 1 or more")
        return self._splits.held_out_tasks[:count]

    def size(self) -> int | None:
        return None if self._options.epochs is None else self._options.epochs * self._options.size

    def state(self) -> Mapping[str, Any]:
        return {"position": self._position, "seed": self._seed, "size": self._options.size}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue after the last draw. Raises RequestError when the state is of other data."""
        for key, ours in (("seed", self._seed), ("size", self._options.size)):
            if state[key] != ours:
                raise RequestError(
                    f"the saved position is in data of {key} {state[key]}, but the recipe's is {ours}",
                    where=f"data.{key}",
                    mend=f"resume with {key}: {state[key]}",
                )
        self._position = int(state["position"])

    def _order_of(self, epoch: int) -> list[int]:
        if self._order[0] != epoch:
            order = list(range(self._options.size))
            Random(f"order {self._seed} {epoch}").shuffle(order)
            self._order = (epoch, order)
        return self._order[1]
