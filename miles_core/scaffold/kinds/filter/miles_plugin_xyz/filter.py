"""A filter by the length of the answers."""

from miles_core import BuildContext, Group, Verdict

from miles_plugin_xyz.options import XyzOptions


class XyzFilter:
    """Keeps a group when the mean length of its answers lies within the bounds. See `miles_core.Filter`."""

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self._shortest = options.shortest
        self._longest = options.longest

    def judge(self, group: Group) -> Verdict:
        mean = sum(len(trajectory.text) for trajectory in group.trajectories) / len(group.trajectories)
        if mean < self._shortest:
            return Verdict(False, "too-short")
        if mean > self._longest:
            return Verdict(False, "too-long")
        return Verdict(True)
