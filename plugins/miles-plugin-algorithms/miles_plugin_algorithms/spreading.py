"""From groups to rewards, and from one number a trajectory back to numbers for its tokens."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from miles_core import Group, Trajectory, ValidationError

Float64 = npt.NDArray[np.float64]

SPREADING = "every sampled token of every sequence of a trajectory gets the trajectory's advantage"
"""The sentence that the algorithm cards print for `spread`."""


def rewards_of(group: Group) -> Float64:
    """The rewards of a group's trajectories, float64 [number of trajectories].

    Raises ValidationError naming the trajectory that has no verdict: 0 would be a made-up one.
    """
    rewards = np.empty(len(group.trajectories), dtype=np.float64)
    for place, trajectory in enumerate(group.trajectories):
        if trajectory.reward is None:
            raise ValidationError(
                f"trajectory {trajectory.id!r} of group {group.id} (task {group.task.id!r}) has no reward",
                mend="drop trajectories without a verdict before advantages are computed",
            )
        rewards[place] = trajectory.reward
    return rewards


def spread(trajectory: Trajectory, value: float) -> tuple[npt.NDArray[np.float32], ...]:
    """One float32 [n] array for each sequence: `value` where a token was sampled, 0 elsewhere."""
    return tuple(np.where(sequence.sampled, np.float32(value), np.float32(0)) for sequence in trajectory.sequences)


def all_equal(rewards: Float64) -> bool:
    """Whether the rewards are exactly equal. Their computed standard deviation may still differ from 0 by rounding,
    which a small epsilon would blow up."""
    return len(rewards) > 0 and bool(rewards.max() == rewards.min())
