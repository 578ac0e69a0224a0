"""REINFORCE++-baseline advantages: rewards against their group's mean, whitened over the whole batch.

    D_i = R_i - mean of the group's rewards
    A_i = (D_i - m) / sqrt(v + epsilon),  m and v: mean and variance of D over the batch

Source: REINFORCE++ (arXiv 2501.03262, version 2 and later, the "w/ baseline" variant). The paper whitens over the
global batch without saying of what; implementations whiten over tokens, so that a long trajectory counts more. Its KL
to a reference is a separate k2 term: `loss: {use: policy, kl: {estimator: k2, weight: ...}}`.
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


class ReinforcePlusPlusBaselineOptions(Options):
    """What "REINFORCE++-baseline" leaves open."""

    whiten_over: Literal["tokens", "trajectories"] = Field(
        default="tokens",
        description="a trajectory counts in the batch's mean and variance with its sampled tokens, or once",
    )
    ddof: Literal[0, 1] = Field(default=1, description="the variance divides by n - ddof: 1 is the unbiased one")
    epsilon: float = Field(default=1e-8, ge=0, allow_inf_nan=False, description="added to the variance")

    def card(self) -> Mapping[str, str]:
        counted = "sampled token" if self.whiten_over == "tokens" else "trajectory"
        return {
            "baseline": "the mean reward of the group is subtracted; no division by the group's deviation",
            "divided by": f"the root of the batch's variance plus epsilon, every {counted} counting once",
            "standard deviation": f"ddof {self.ddof}, after the batch's mean was subtracted as well",
            "epsilon": f"{self.epsilon:g}, added to the variance under the root",
            "group of one": "0 before the whitening, so minus the batch's mean in units of its deviation after it",
            "all rewards equal": "0 before the whitening, like a group of one; advantage 0 when no group differs",
            "spread": SPREADING,
        }

    def check(self, facts: RecipeFacts) -> Iterable[str]:
        return check_comparable("reinforce-plus-plus-baseline", facts)


class ReinforcePlusPlusBaseline:
    """Computes in float64, returns float32. Groups may differ in size."""

    def __init__(self, options: ReinforcePlusPlusBaselineOptions, context: BuildContext) -> None:
        self.options = options

    def compute(self, groups: Several[Group]) -> Mapping[str, tuple[npt.NDArray[np.float32], ...]]:
        """See `miles_core.Advantage.compute`. Raises ValidationError naming a trajectory without a reward."""
        trajectories = [trajectory for group in groups for trajectory in group.trajectories]
        if not trajectories:
            return {}
        deviations = np.concatenate([_deviations(rewards_of(group)) for group in groups])
        counts = np.array([trajectory.sampled_count for trajectory in trajectories], dtype=np.float64)
        if self.options.whiten_over == "trajectories":
            counts = np.minimum(counts, 1)  # one without a sampled token is not trained on, so it does not count
        whitened = self._whiten(deviations, counts)
        return {
            trajectory.id: spread(trajectory, value) for trajectory, value in zip(trajectories, whitened, strict=True)
        }

    def _whiten(self, deviations: Float64, counts: Float64) -> Float64:
        total = counts.sum()
        counted = deviations[counts > 0]
        if total <= self.options.ddof or all_equal(counted):
            return np.zeros(len(deviations))
        mean = (counts * deviations).sum() / total
        variance = (counts * (deviations - mean) ** 2).sum() / (total - self.options.ddof)
        return np.asarray((deviations - mean) / np.sqrt(variance + self.options.epsilon))


def _deviations(rewards: Float64) -> Float64:
    return np.zeros(len(rewards)) if all_equal(rewards) else rewards - rewards.mean()
