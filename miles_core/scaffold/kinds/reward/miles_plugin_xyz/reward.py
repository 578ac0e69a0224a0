"""A reward that prefers short answers."""

from miles_core import BuildContext, Group, Score

from miles_plugin_xyz.options import XyzOptions


class XyzReward:
    """1 for an empty answer, falling evenly to 0 at `limit` characters, and 0 beyond. See `miles_core.Reward`."""

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self._limit = options.limit

    async def score(self, group: Group) -> list[Score | None]:
        return [self._judge(trajectory.text) for trajectory in group.trajectories]

    def _judge(self, text: str) -> Score:
        value = max(0.0, 1.0 - len(text) / self._limit)
        return Score(value, detail=f"{len(text)} of {self._limit} characters")
