"""When a rollout gives up: nothing that it makes is ever kept."""

from __future__ import annotations

from collections import deque

from miles_core.contracts.rollout import Verdict
from miles_core.errors import RunError
from miles_core.types.trajectory import Group, Status


class Patience:
    """Counts groups that were dropped in a row, in rounds: as many groups as are in flight together."""

    def __init__(self, rounds: int) -> None:
        self._rounds = rounds
        self._per_round = 1
        self._reasons: deque[str] = deque()
        self._dropped = 0
        self._kept = False
        self.something_succeeded = False

    def begin_round(self, groups: int) -> None:
        """That many groups go together. A round in which one was kept starts the count anew."""
        self._per_round = max(groups, 1)
        if self._kept:
            self._dropped = 0
        self._kept = False

    def note(self, verdict: Verdict) -> None:
        """Raises RunError when it was too much."""
        if verdict.keep:
            self._kept, self._dropped = True, 0
            return
        self._dropped += 1
        self._reasons.append(verdict.reason)
        while len(self._reasons) > self._per_round:
            self._reasons.popleft()
        if self._dropped >= self._rounds * self._per_round:
            raise RunError(
                f"{self._rounds} rounds in a row gave no group to train on; "
                f"the last were dropped as: {', '.join(sorted(set(self._reasons)))}",
                mend="choose tasks that the model sometimes solves, a graded reward, or another filter",
            )

    def look_at(self, group: Group) -> None:
        """Raises RunError when every attempt at a group failed and no attempt of the run ever did not: something is
        broken. Later such a group is a failure among others, and counted."""
        failures = [t for t in group.trajectories if t.status is Status.FAILED]
        if len(failures) < len(group.trajectories):
            self.something_succeeded = True
        elif not self.something_succeeded:
            raise RunError(
                f"every attempt at task {group.task.id!r} failed; the first: {failures[0].metadata.get('error')}",
                where=f"group {group.id}",
                mend="its traceback was logged when it happened; `miles run --plain` shows the log line by line",
            )
