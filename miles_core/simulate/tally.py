"""What became of every trajectory, how long those of each class were, and how old: in bounded memory."""

from __future__ import annotations

from collections import Counter
from typing import Any

from miles_core.loop.batch import choose
from miles_core.simulate.ring import Took
from miles_core.types.trajectory import Disposition, Group


class Tally:
    """Counts what leaves the ring. `open` are the attempts of groups that have not yet left it: each leaves once."""

    def __init__(self, open_groups: dict[int, int], needs_reward: bool) -> None:
        self._open, self._needs_reward = open_groups, needs_reward
        self.became: Counter[Disposition] = Counter()
        self.reasons: Counter[str] = Counter()
        self.ages: Counter[int] = Counter()
        self.batches = 0
        self.trained_tokens = 0
        self._lengths: dict[Disposition, Counter[int]] = {}

    def note(self, took: Took) -> None:
        """A batch and the discards before it."""
        for discard in took.discards:
            self.reasons[_class_of(discard.disposition, discard.reason)] += 1
            self._leave(discard.group, {t.id: discard.disposition for t in discard.group.trajectories})
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
        self.became[Disposition.CANCELLED] += sum(self._open.values())
        self._open.clear()

    @property
    def trajectories(self) -> int:
        return self.became.total()

    def lengths(self) -> dict[str, dict[str, float]]:
        """Sampled tokens of a trajectory, for each class: how many trajectories, mean, and percentiles."""
        return {kind.value: _describe(counts) for kind, counts in sorted(self._lengths.items())}

    def _leave(self, group: Group, dispositions: Any) -> None:
        started = self._open.pop(group.number, 0)
        if started != len(group.trajectories):
            raise AssertionError(f"{group.id} leaves with {len(group.trajectories)} attempts, {started} were made")
        for trajectory in group.trajectories:
            kind = dispositions[trajectory.id]
            self.became[kind] += 1
            if count := trajectory.sampled_count:
                self._lengths.setdefault(kind, Counter())[count] += 1
                self.trained_tokens += count * (kind is Disposition.TRAINED)


def _class_of(disposition: Disposition, reason: str) -> str:
    """Reasons of filters are few; how old exactly a stale group was is not a class."""
    return f"filtered/{reason}" if disposition is Disposition.FILTERED else disposition.value


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
