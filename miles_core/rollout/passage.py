"""What passed through the buffer since it was last asked: counts by class, ages, lengths of kept against discarded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np

from miles_core.types.trajectory import Disposition, Group

KEPT = "kept"


class Passage:
    """Counts and forgets: `metrics` gives what was noted since its last call.

    Lengths tell whether discarding is blind to them: dropping old groups drops long answers, which took longest.
    """

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._ages: list[int] = []
        self._lengths: dict[str, list[int]] = {}

    def take(self, group: Group, instead: Group | None = None) -> None:
        """A group goes to the trainer, as it is or with fewer tokens that teach."""
        self._measure(KEPT, group)
        if instead is not None:
            self._counts["old_tokens"] += _tokens(group) - _tokens(instead)

    def discard(self, group: Group, disposition: Disposition, reason: str) -> None:
        name = disposition.value if disposition is not Disposition.FILTERED else f"filtered/{reason}"
        self._counts[name] += 1
        finished = Disposition.STALE if disposition is Disposition.CANCELLED else disposition
        self._measure(finished.value, group)

    def discard_part(self, stale: Group) -> None:
        """These trajectories of a group are made again; the others stay."""
        self._counts[Disposition.STALE.value] += 1
        self._counts["remade"] += 1
        self._counts["remade_trajectories"] += len(stale.trajectories)
        self._measure(Disposition.STALE.value, stale)

    def count(self, name: str) -> None:
        self._counts[name] += 1

    def age(self, group: Group, version: int) -> None:
        """How old a group was when it was its turn, whether it then was too old or not."""
        if group.oldest_version is not None:
            self._ages.append(version - group.oldest_version)

    def metrics(self) -> dict[str, float]:
        metrics: dict[str, float] = {
            "buffer/aborted": self._counts.pop("aborted", 0),
            "buffer/stale": self._counts.pop("stale", 0),
            "buffer/staleness_mean": sum(self._ages) / len(self._ages) if self._ages else 0.0,
            "buffer/staleness_max": max(self._ages, default=0),
        }
        metrics.update({f"buffer/{name}": count for name, count in sorted(self._counts.items())})
        if len(self._lengths) > (KEPT in self._lengths):
            for name, lengths in sorted(self._lengths.items()):
                middle, long = np.percentile(lengths, (50, 90)) if lengths else (0.0, 0.0)
                metrics[f"buffer/length_{name}_mean"] = float(np.mean(lengths)) if lengths else 0.0
                metrics[f"buffer/length_{name}_p50"] = float(middle)
                metrics[f"buffer/length_{name}_p90"] = float(long)
        self._forget()
        return metrics

    def state(self) -> Mapping[str, Any]:
        """Empty when nothing was noted."""
        noted = {"counts": dict(self._counts), "ages": list(self._ages), "lengths": dict(self._lengths)}
        return {name: value for name, value in noted.items() if value}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._counts = Counter(state.get("counts", {}))
        self._ages = list(state.get("ages", ()))
        self._lengths = {name: list(lengths) for name, lengths in state.get("lengths", {}).items()}

    def _measure(self, name: str, group: Group) -> None:
        lengths = self._lengths.setdefault(name, [])
        lengths += [trajectory.sampled_count for trajectory in group.trajectories if trajectory.sequences]

    def _forget(self) -> None:
        self._counts.clear()
        self._ages.clear()
        self._lengths.clear()


def _tokens(group: Group) -> int:
    return sum(trajectory.sampled_count for trajectory in group.trajectories)
