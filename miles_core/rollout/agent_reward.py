"""The `agent` reward: hands out the verdict that the agent itself gave."""

from __future__ import annotations

from miles_core.contracts.component import BuildContext
from miles_core.contracts.options import NoOptions
from miles_core.rollout.agent import own_score
from miles_core.types.trajectory import Group, Score


class AgentReward:
    """`Outcome.reward` of the agent; no verdict where it gave none, or where no agent made the trajectory."""

    def __init__(self, options: NoOptions, context: BuildContext) -> None:
        pass

    async def score(self, group: Group) -> list[Score | None]:
        return [next(iter(own_score(trajectory).values()), None) for trajectory in group.trajectories]
