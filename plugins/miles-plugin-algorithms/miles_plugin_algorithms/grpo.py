"""GRPO advantages: rewards compared within their group.

    A_i = (R_i - b_i) / (s_i + epsilon)

Sources: DeepSeekMath (arXiv 2402.03300, section 4.1.2, outcome supervision): b = mean and s = std of the group's
rewards. Dr.GRPO (2503.20783): s left out, `scale: none`. MaxRL (2602.02710): s = the group's mean,
`scale: mean`. "Tricks or Traps" (2508.08221): the group's mean with the batch's std, `scale: batch-std`.
"std" in these papers says neither its degrees of freedom nor its epsilon, and systems differ; here both are options.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Several
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, model_validator

from miles_core import BuildContext, Group, Options, RecipeFacts, ValidationError
from miles_plugin_algorithms.group_facts import check_comparable
from miles_plugin_algorithms.spreading import SPREADING, Float64, all_equal, rewards_of, spread

DIVIDED_BY = {
    "std": "the standard deviation of the same trajectories' rewards, plus epsilon",
    "batch-std": "the standard deviation of all rewards of the batch, plus epsilon",
    "mean": "the mean of the group's rewards, plus epsilon (rewards must be 0 or more)",
    "none": "nothing",
}


class GrpoOptions(Options):
    """What "GRPO" leaves open."""

    baseline: Literal["mean", "others"] = Field(
        default="mean",
        description="subtract the mean of the whole group, or of the group's other trajectories (leave-one-out)",
    )
    scale: Literal["std", "batch-std", "mean", "none"] = Field(
        default="std",
        description="divide by: std of the trajectories that made the baseline, std of the batch, the mean, nothing",
    )
    ddof: Literal[0, 1] = Field(default=1, description="the std divides by n - ddof: 1 is the unbiased one")
    epsilon: float = Field(default=1e-6, ge=0, allow_inf_nan=False, description="added to what is divided by")
    singleton: Literal["zero", "raw"] = Field(
        default="zero",
        description="the advantage in a group that shrank to one trajectory: 0, or its reward as it is",
    )

    @model_validator(mode="after")
    def _mean_of_others_may_be_zero(self) -> GrpoOptions:
        if self.scale == "mean" and self.baseline == "others":
            raise ValueError("scale: mean needs baseline: mean, since the mean of the others may be 0")
        return self

    def card(self) -> Mapping[str, str]:
        who = "the group" if self.baseline == "mean" else "the group's other trajectories (leave-one-out)"
        card = {
            "baseline": f"the mean reward of {who} is subtracted",
            "divided by": DIVIDED_BY[self.scale],
            "group of one": "advantage 0" if self.singleton == "zero" else "the reward as it is, nothing subtracted",
            "all rewards equal": "advantage 0 (they are compared exactly)",
            "spread": SPREADING,
        }
        if "std" in self.scale:
            kind = "unbiased (n - 1)" if self.ddof else "of the population (n)"
            card["standard deviation"] = f"ddof {self.ddof}: {kind}; where it is 0 or undefined, nothing is divided"
        if self.scale != "none":
            card["epsilon"] = f"{self.epsilon:g}, added to the divisor"
        return card

    def check(self, facts: RecipeFacts) -> Iterable[str]:
        yield from check_comparable("grpo", facts)
        if facts.group_size == 2 and self.baseline == "others" and self.scale == "std" and self.ddof == 1:
            yield (
                "grpo with baseline: others, scale: std and ddof: 1 needs the deviation of the others, and in a group "
                "of 2 there is one other, which has none; set schedule.group_size to 3 or more, or scale: none"
            )


class Grpo:
    """Computes in float64, returns float32. Groups may differ in size."""

    def __init__(self, options: GrpoOptions, context: BuildContext) -> None:
        self.options = options

    def compute(self, groups: Several[Group]) -> Mapping[str, tuple[npt.NDArray[np.float32], ...]]:
        """See `miles_core.Advantage.compute`. Raises ValidationError naming a trajectory without a reward, or with a
        negative one under `scale: mean`."""
        rewards = [rewards_of(group) for group in groups]
        batch_std = self._std(np.concatenate(rewards)) if self.options.scale == "batch-std" and rewards else 0.0
        advantages: dict[str, tuple[npt.NDArray[np.float32], ...]] = {}
        for group, own in zip(groups, rewards, strict=True):
            if self.options.scale == "mean":
                _refuse_negative(group, own)
            for trajectory, value in zip(group.trajectories, self._of_group(own, batch_std), strict=True):
                advantages[trajectory.id] = spread(trajectory, value)
        return advantages

    def _of_group(self, rewards: Float64, batch_std: float) -> Float64:
        """Advantages [G] of rewards [G]."""
        if len(rewards) == 1:
            return rewards if self.options.singleton == "raw" else np.zeros(1)
        if all_equal(rewards):
            return np.zeros(len(rewards))
        if self.options.baseline == "mean":
            mean = float(rewards.mean())
            advantages: Float64 = (rewards - mean) / self._divisor(rewards, mean, batch_std)
            return advantages
        # G - 1 rewards for each trajectory; groups are small, and a loop keeps the definition in sight
        values = np.empty(len(rewards))
        for place, reward in enumerate(rewards):
            others = np.delete(rewards, place)
            mean = float(others.mean())
            values[place] = (reward - mean) / self._divisor(others, mean, batch_std)
        return values

    def _divisor(self, compared: Float64, mean: float, batch_std: float) -> float:
        match self.options.scale:
            case "none":
                return 1.0
            case "mean":
                return mean + self.options.epsilon
            case "std":
                std = self._std(compared)
            case "batch-std":
                std = batch_std
        return std + self.options.epsilon if std > 0 else 1.0

    def _std(self, rewards: Float64) -> float:
        """The standard deviation; 0 where it is 0 exactly or has no degree of freedom: nothing is divided then."""
        if len(rewards) <= self.options.ddof or all_equal(rewards):
            return 0.0
        return float(rewards.std(ddof=self.options.ddof))


def _refuse_negative(group: Group, rewards: Float64) -> None:
    if (rewards < 0).any():
        lowest = group.trajectories[int(rewards.argmin())]
        raise ValidationError(
            f"trajectory {lowest.id!r} has the reward {lowest.reward}, and grpo with scale: mean divides by the mean "
            "reward, which needs rewards of 0 or more",
            mend="use rewards of 0 or more, or another scale",
        )
