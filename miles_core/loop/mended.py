"""Groups of which only some trajectories were stale: the others must be in the next group of the same draw."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from miles_core.types.trajectory import Disposition

if TYPE_CHECKING:
    from miles_core.loop.audit import Finding
    from miles_core.loop.evidence import Entry

Draw = tuple[str, str, int]
"""Phase, task and draw."""


@dataclass(slots=True)
class Mended:
    """What is on record of each draw, group by group."""

    _short: dict[Draw, dict[int, tuple[frozenset[int], str]]] = field(default_factory=lambda: defaultdict(dict))
    _carried: dict[Draw, dict[int, frozenset[int]]] = field(default_factory=lambda: defaultdict(dict))

    def look(self, entry: Entry, size: int) -> bool:
        """Whether the group has all of its `size` trajectories on record, or gave only stale ones up."""
        group = entry.group
        draw = (entry.phase, group.task.id, group.draw)
        own = f"{group.id}."
        carried = frozenset(t.index for t in group.trajectories if not t.id.startswith(own))
        if carried:
            self._carried[draw][group.number] = carried
        missing = frozenset(range(size)) - {t.index for t in group.trajectories}
        if not missing:
            return len(group.trajectories) == size
        if not group.trajectories or set(entry.dispositions.values()) != {Disposition.STALE}:
            return False
        self._short[draw][group.number] = (missing, entry.where)
        return True

    def findings(self, submitted: dict[Draw, list[int]], ended: bool, found: type[Finding]) -> Iterator[Finding]:
        """`submitted`: numbers on record of each draw. A run that has not ended may still complete the last one."""
        for draw, groups in self._short.items():
            for number, (missing, where) in groups.items():
                later = min((each for each in submitted.get(draw, ()) if each > number), default=None)
                if later is None:
                    if ended:
                        yield found(f"kept {len(missing)} trajectories, which are in no later group", where)
                    continue
                handed_on = self._carried[draw].get(later, frozenset())
                again = groups[later][0] if later in groups else frozenset()
                if lost := sorted(missing - handed_on - again):
                    yield found(f"kept its trajectories {lost}, which group g{later} does not have", where)
