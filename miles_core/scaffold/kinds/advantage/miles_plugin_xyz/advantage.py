"""Advantages from ranks.

A_i = scale * (number of worse ones - number of better ones) / (group size - 1)
"""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from miles_core import BuildContext, Group
from numpy.typing import NDArray

from miles_plugin_xyz.options import XyzOptions


class XyzAdvantage:
    """The same number for every token of a trajectory. See `miles_core.Advantage`."""

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self._scale = options.scale

    def compute(self, groups: Sequence[Group]) -> Mapping[str, tuple[NDArray[np.float32], ...]]:
        advantages = {}
        for group in groups:
            ranks = centred_ranks(np.array([trajectory.reward for trajectory in group.trajectories]))
            for trajectory, rank in zip(group.trajectories, self._scale * ranks, strict=True):
                rows = (np.full(len(sequence), rank, np.float32) for sequence in trajectory.sequences)
                advantages[trajectory.id] = tuple(rows)
        return advantages


def centred_ranks(rewards: NDArray[Any]) -> NDArray[Any]:
    """[n] numbers between -1 and 1 that add up to 0."""
    worse = (rewards[:, None] > rewards[None, :]).sum(axis=1)
    better = (rewards[:, None] < rewards[None, :]).sum(axis=1)
    return np.asarray((worse - better) / max(len(rewards) - 1, 1))
