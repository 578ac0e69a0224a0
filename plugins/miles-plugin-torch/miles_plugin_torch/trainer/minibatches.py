"""A batch's rows as the mini-batches of its optimizer steps."""

from __future__ import annotations

from collections.abc import Hashable
from collections.abc import Sequence as Several
from typing import TypeVar

from miles_core import Row, RunError

Key = TypeVar("Key", bound=Hashable)


def minibatches(rows: Several[Row], count: int) -> list[tuple[Row, ...]]:
    """`count` mini-batches in row order, as equal as can be in trajectories.

    Whole groups when there are at least as many groups as mini-batches, else whole trajectories: a group is what
    advantages were normalised over, and rows of a trajectory are never split. Raises RunError when there are fewer
    trajectories than mini-batches.
    """
    if count == 1:
        return [tuple(rows)]
    groups = list(dict.fromkeys(row.group for row in rows))
    trajectories = list(dict.fromkeys((row.group, row.trajectory) for row in rows))
    if len(trajectories) < count:
        raise RunError(
            f"{count} optimizer steps need {count} trajectories, the batch has {len(trajectories)}",
            mend="lower trainer.optimizer_steps or take more groups a step",
        )
    if len(groups) >= count:
        place = _deal(groups, count)
        home = {key: place[key[0]] for key in trajectories}
    else:
        home = _deal(trajectories, count)
    dealt: list[list[Row]] = [[] for _ in range(count)]
    for row in rows:
        dealt[home[(row.group, row.trajectory)]].append(row)
    return [tuple(part) for part in dealt]


def _deal(keys: list[Key], count: int) -> dict[Key, int]:
    """Consecutive keys to `count` parts whose sizes differ by at most one."""
    return {key: index * count // len(keys) for index, key in enumerate(keys)}
