"""The `unequal-rewards` filter: drops groups whose rewards are all equal, which teach a group-relative loss nothing."""

from __future__ import annotations

from pydantic import Field

from miles_core.contracts.component import BuildContext
from miles_core.contracts.options import Options
from miles_core.contracts.rollout import Verdict
from miles_core.types.trajectory import Group


class UnequalRewardsOptions(Options):
    """What counts as equal."""

    tolerance: float = Field(default=1e-8, ge=0, description="largest difference of rewards that counts as equal")


class UnequalRewards:
    """Keeps a group when its highest and lowest reward differ by more than the tolerance."""

    def __init__(self, options: UnequalRewardsOptions, context: BuildContext) -> None:
        self._tolerance = options.tolerance

    def judge(self, group: Group) -> Verdict:
        rewards = [t.reward for t in group.trajectories if t.reward is not None]
        if rewards and max(rewards) - min(rewards) > self._tolerance:
            return Verdict(True)
        return Verdict(False, f"all-equal-{rewards[0]:g}" if rewards else "no-verdict")
