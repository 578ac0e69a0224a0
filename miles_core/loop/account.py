"""What a phase has granted its rollout, and what discards do to that."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from miles_core.contracts.rollout import Discard, Draw, Rollout
from miles_core.errors import PluginError
from miles_core.rollout.recycled import RecyclingData
from miles_core.types.trajectory import Disposition, Group


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
    rollout had counted it as kept; or, where it keeps some of its trajectories, made whole again."""

    def __init__(self, data: RecyclingData, rollout: Rollout) -> None:
        self._data = data
        self._rollout = rollout

    def __call__(self, discard: Discard) -> None:
        group = discard.group
        if discard.kept is not None:
            self._remake(discard.kept)
            return
        if discard.recycle:
            self._data.take_back(Draw(group.task, group.draw, group.remade + 1 if group.remade else 0))
        if discard.disposition is Disposition.STALE:
            self._rollout.grant(1)

    def _remake(self, kept: Group) -> None:
        remake = getattr(self._rollout, "remake", None)
        if remake is None:
            raise PluginError(
                f"{type(self._rollout).__name__} cannot make single trajectories of a group again, which the staleness "
                "policy asks for",
                where="rollout",
                mend="give it the method remake(kept), in middleware that of miles_core.RolloutMiddleware; or choose "
                "another policy",
            )
        remake(kept)
