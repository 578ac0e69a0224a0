"""What the sessions of a service went through, for the metrics of a step: docs/metrics.md says what each name means."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from miles_core.session.tree import Node, Tree

CLOSED, EXPIRED = "closed", "expired"
ALWAYS = ("opened", CLOSED, EXPIRED, "turns", "forks", "retries", "undelivered")
"""Counted in every step, however often; calls that were refused or failed are there when there were some."""


class Counts:
    """Counts since it was last asked. `faults` counts all calls that were refused or failed, by code, and is never
    emptied: the difference is told."""

    def __init__(self, faults: Mapping[str, int]) -> None:
        self._counted: Counter[str] = Counter()
        self._faults = faults
        self._told: dict[str, int] = {}

    def add(self, what: str) -> None:
        self._counted[what] += 1

    def turn(self, tree: Tree, node: Node) -> None:
        """A turn was kept. It is a retry when the same was asked at its place before, and a fork when something else
        was, and stands."""
        self.add("turns")
        if node.again:
            self.add("retries")
        elif any(tree.stands(other) for other in tree.children(node.parent) if other is not node):
            self.add("forks")

    def metrics(self) -> dict[str, float]:
        counted, self._counted = self._counted, Counter()
        grown = {code: count - self._told.get(code, 0) for code, count in self._faults.items()}
        self._told = dict(self._faults)
        found = {f"session/{what}": float(counted[what]) for what in ALWAYS}
        return found | {f"session/refused/{code}": float(count) for code, count in sorted(grown.items()) if count}
