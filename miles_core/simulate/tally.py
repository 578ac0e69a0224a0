"""What became of every trajectory, how long those of each class were, and how old: in bounded memory."""

from __future__ import annotations

from collections import Counter
from typing import Any

from miles_core.contracts.rollout import Discard
from miles_core.loop.batch import choose
from miles_core.simulate.ring import Took
from miles_core.types.trajectory import CANCELLED, Disposition, Group


class Tally:
    """Counts what leaves the ring. `started` are the attempts that have not yet left it: each leaves once."""

    def __init__(self, started: set[str], needs_reward: bool) -> None:
        self._open, self._needs_reward = started, needs_reward
        self.became: Counter[Disposition] = Counter()
        self.reasons: Counter[str] = Counter()
        self.ages: Counter[int] = Counter()
        self.batches = 0
        self.trained_tokens = 0
        self._lengths: dict[Disposition, Counter[int]] = {}

    def note(self, took: Took) -> None:
        """A batch and the discards before it."""
        for discard in took.discards:
            self.reasons[_class_of(discard)] += 1
            self._leave(discard.group, discard.dispositions)
        chosen = choose(took.groups, self._needs_reward)
        for group in took.groups:
            if group.oldest_version is not None:
                self.ages[took.version - group.oldest_version] += 1
            self._leave(group, chosen.dispositions)
        self.batches += bool(took.groups)

    def close(self, waiting: list[Group]) -> None:
        """The end: what waits was made for nothing, what is still made is cancelled."""
        for group in waiting:
            self._leave(group, {t.id: Disposition.SURPLUS for t in group.trajectories})
        self.became[Disposition.CANCELLED] += len(self._open)
        self._open.clear()

    @property
    def trajectories(self) -> int:
        return self.became.total()

    def lengths(self) -> dict[str, dict[str, float]]:
        """Sampled tokens of a trajectory, for each class: how many trajectories, mean, and percentiles."""
        return {kind.value: _describe(counts) for kind, counts in sorted(self._lengths.items())}

    def _leave(self, group: Group, dispositions: Any) -> None:
        for trajectory in group.trajectories:
            if trajectory.id not in self._open and CANCELLED not in trajectory.metadata:
                raise AssertionError(f"{trajectory.id} of {group.id} leaves twice, or was not made")
            self._open.discard(trajectory.id)  # one that was cancelled may not have begun
            kind = dispositions[trajectory.id]
            self.became[kind] += 1
            if count := trajectory.sampled_count:
                self._lengths.setdefault(kind, Counter())[count] += 1
                self.trained_tokens += count * (kind is Disposition.TRAINED)


def _class_of(discard: Discard) -> str:
    """Reasons of filters are few; how old exactly a stale group was is not a class."""
    if discard.kept is not None:
        return "made again in part"
    filtered = discard.disposition is Disposition.FILTERED
    return f"filtered/{discard.reason}" if filtered else discard.disposition.value


def _describe(counts: Counter[int]) -> dict[str, float]:
    count = counts.total()
    described: dict[str, float] = {"trajectories": count, "mean": sum(n * of for n, of in counts.items()) / count}
    wanted = {"p50": 0.5, "p90": 0.9, "p99": 0.99}
    seen = 0
    for length in sorted(counts):
        seen += counts[length]
        for name in [name for name, share in wanted.items() if seen >= share * count]:
            described[name] = length
            del wanted[name]
    described["max"] = max(counts)
    return described
