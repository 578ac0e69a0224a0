"""RLOO advantages: each reward against the mean of the group's other trajectories.

    A_i = R_i - (1 / (G - 1)) * sum over j != i of R_j  =  G / (G - 1) * (R_i - mean(R))

Source: "Back to Basics" (arXiv 2402.14740, REINFORCE leave-one-out).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Several
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from miles_core import BuildContext, Group, Options, RecipeFacts
from miles_plugin_algorithms.group_facts import check_comparable
from miles_plugin_algorithms.spreading import SPREADING, Float64, all_equal, rewards_of, spread


class RlooOptions(Options):
    """What "RLOO" leaves open."""

    singleton: Literal["zero", "raw"] = Field(
        default="zero",
        description="the advantage in a group that shrank to one trajectory: 0, or its reward as it is",
    )

    def card(self) -> Mapping[str, str]:
        return {
            "baseline": "the mean reward of the group's other trajectories is subtracted (leave-one-out)",
            "divided by": "nothing: no standard deviation, no epsilon",
            "group of one": "advantage 0" if self.singleton == "zero" else "the reward as it is, nothing subtracted",
            "all rewards equal": "advantage 0 (they are compared exactly)",
            "spread": SPREADING,
        }

    def check(self, facts: RecipeFacts) -> Iterable[str]:
        return check_comparable("rloo", facts)


class Rloo:
    """Computes in float64, returns float32. Groups may differ in size: G is the group's own."""

    def __init__(self, options: RlooOptions, context: BuildContext) -> None:
        self.options = options

    def compute(self, groups: Several[Group]) -> Mapping[str, tuple[npt.NDArray[np.float32], ...]]:
        """See `miles_core.Advantage.compute`. Raises ValidationError naming a trajectory without a reward."""
        return {
            trajectory.id: spread(trajectory, value)
            for group in groups
            for trajectory, value in zip(group.trajectories, self._of_group(rewards_of(group)), strict=True)
        }

    def _of_group(self, rewards: Float64) -> Float64:
        size = len(rewards)
        if size == 1:
            return rewards if self.options.singleton == "raw" else np.zeros(1)
        if all_equal(rewards):
            return np.zeros(size)
        advantages: Float64 = (rewards - rewards.mean()) * (size / (size - 1))
        return advantages
