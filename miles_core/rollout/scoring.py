"""Scoring a finished group: every reward once, their weighted sum on each trajectory."""

from __future__ import annotations

from collections.abc import Sequence as Several
from dataclasses import dataclass

from miles_core.contracts.blame import place_of, text_of
from miles_core.contracts.rollout import Reward
from miles_core.errors import MilesError, PluginError
from miles_core.rollout.agent import own_score
from miles_core.rollout.together import is_our_end
from miles_core.types.trajectory import Group, Score, Status, Trajectory


@dataclass(frozen=True, slots=True)
class WeighedReward:
    """One named input of the reward; `owner` says whose code it is, for errors."""

    name: str
    weight: float
    reward: Reward
    owner: str


class Scorer:
    """reward = sum of weight x value over the rewards that have a verdict; None when one with a weight has none.

    A trajectory that failed or was aborted is not scored: it has no verdict. A reward of weight 0 is only measured.
    The score that an agent gave itself stays on record, and counts only through the reward `agent`.
    """

    def __init__(self, rewards: Several[WeighedReward]) -> None:
        self._rewards = tuple(rewards)

    async def __call__(self, group: Group) -> Group:
        finished = [t for t in group.trajectories if t.status in (Status.COMPLETED, Status.TRUNCATED)]
        if not finished or not self._rewards:
            return group
        asked = group.replacing(tuple(finished))
        columns = {reward.name: await self._ask(reward, asked) for reward in self._rewards}
        judged: dict[str, Trajectory] = {}
        for place, trajectory in enumerate(finished):
            scores = {name: column[place] for name, column in columns.items()}
            reward = self._combine(scores, trajectory)
            judged[trajectory.id] = trajectory.judged(reward, {**own_score(trajectory), **scores})
        return group.replacing(tuple(judged.get(t.id, t) for t in group.trajectories))

    async def _ask(self, reward: WeighedReward, group: Group) -> list[Score | None]:
        try:
            scores = list(await reward.reward.score(group))
        except BaseException as error:
            if is_our_end(error):
                raise
            what = f"raised {text_of(error)}"
            place = place_of(error)
            mend = "repair it; for a trajectory that it cannot judge, None is no verdict"
            raise _blame(reward, group, f"{what} ({place})" if place else what, mend) from error
        if len(scores) != len(group.trajectories):
            what = f"returned {len(scores)} scores for {len(group.trajectories)} trajectories"
            raise _blame(reward, group, what, "return one for each trajectory, in order; None is no verdict")
        for score in scores:
            if score is not None and not isinstance(score, Score):
                what = f"returned {score!r:.80}, expected a Score or None"
                raise _blame(reward, group, what, "wrap each number in miles_core.Score")
        return scores

    def _combine(self, scores: dict[str, Score | None], trajectory: Trajectory) -> float | None:
        total = 0.0
        for reward in self._rewards:
            score = scores[reward.name]
            if reward.weight == 0.0:
                continue
            if score is None:
                return None
            total += reward.weight * score.value
        return total


def _blame(reward: WeighedReward, group: Group, what: str, mend: str) -> MilesError:
    return PluginError(
        f"reward {reward.name!r} {what}",
        where=f"{reward.owner}, task {group.task.id!r}, group {group.id}",
        mend=mend,
    )
