"""A reward that is a plain function: `rewards: [{use: my_module:my_function}]`.

The function takes any of `task`, `text` (the model's answer), `trajectory` and `group` by name, and returns a number, a
bool or None (no verdict) for one trajectory. It may be a coroutine function.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from numbers import Real
from typing import Any

from pydantic import Field

from miles_core.contracts.component import BuildContext, load_attribute
from miles_core.contracts.options import Options
from miles_core.errors import RequestError
from miles_core.types.trajectory import Group, Score

ARGUMENTS = ("task", "text", "trajectory", "group")


class FunctionRewardOptions(Options):
    """Which function."""

    path: str = Field(description="module:function")


class FunctionReward:
    """Calls the function for each trajectory with the arguments that it names."""

    def __init__(self, options: FunctionRewardOptions, context: BuildContext) -> None:
        self._function: Callable[..., Any] = load_attribute(options.path)
        names = list(inspect.signature(self._function).parameters)
        unknown = [name for name in names if name not in ARGUMENTS]
        if unknown or not names:
            raise RequestError(
                f"reward function {options.path} takes ({', '.join(names)})",
                mend=f"name its arguments from: {', '.join(ARGUMENTS)}",
            )
        self._names = names

    async def score(self, group: Group) -> list[Score | None]:
        scores: list[Score | None] = []
        for trajectory in group.trajectories:
            offered = {"task": group.task, "text": trajectory.text, "trajectory": trajectory, "group": group}
            value = self._function(**{name: offered[name] for name in self._names})
            if inspect.isawaitable(value):
                value = await value
            scores.append(_score(value))
        return scores


def _score(value: Any) -> Score | None:
    if value is None or isinstance(value, Score):
        return value
    if isinstance(value, Real):  # bool and numpy's scalars are
        return Score(float(value))
    raise TypeError(f"it returned {value!r}, expected a number, a bool or None")
