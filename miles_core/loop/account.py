"""What a phase has granted its rollout, and what discards do to that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from miles_core.contracts.rollout import Discard, Draw, Rollout
from miles_core.rollout.recycled import RecyclingData
from miles_core.types.trajectory import Disposition


@dataclass(slots=True)
class Account:
    """Batches taken in this phase, and groups granted for them and for what comes after."""

    batches: int = 0
    granted: int = 0

    def more(self, ahead: int, groups_per_step: int) -> int:
        """Grants that are missing so that `ahead` batches after those that were taken may be made; now granted."""
        missing = max(0, (self.batches + ahead) * groups_per_step - self.granted)
        self.granted += missing
        return missing

    def state(self) -> Mapping[str, Any]:
        return {"batches": self.batches, "granted": self.granted}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.batches, self.granted = state["batches"], state["granted"]


class Returns:
    """Told of each discard: a recycled task goes back to the data, and a stale group is granted again, since the
    rollout had counted it as kept."""

    def __init__(self, data: RecyclingData, rollout: Rollout) -> None:
        self._data = data
        self._rollout = rollout

    def __call__(self, discard: Discard) -> None:
        if discard.recycle:
            self._data.take_back(Draw(discard.group.task, discard.group.draw))
        if discard.disposition is Disposition.STALE:
            self._rollout.grant(1)
