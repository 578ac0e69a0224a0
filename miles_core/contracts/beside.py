"""What parts of a rollout may do beside their contracts: a method that is there or is not.

Whoever needs it asks with `hasattr`; what is missing is refused by name, or done without.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Several
from typing import Any, Protocol

from miles_core.contracts.pace import Pace
from miles_core.types.trajectory import Group


class Foresees(Protocol):
    """What a staleness policy may do beside: say early that a group will be too old, so that its attempts in flight are
    cancelled. A policy without this method lets them end."""

    def hopeless(self, group: Group, version: int) -> str:
        """Why a group that has these finished trajectories, and others besides, is too old at `version` and ever after,
        whatever the others become; "" when it need not be. What could still be trained is never hopeless."""
        ...


class Resizes(Protocol):
    """What a buffer may do beside: change its bound while it is in use. A schedule that adapts needs it."""

    def resize(self, groups: int) -> None:
        """So many groups may wait from now on. When more do, none is lost: fewer come in until it fits."""
        ...


class Remakes(Protocol):
    """What a rollout may do beside, with the capability `remakes`: make single trajectories of a group again."""

    def remake(self, kept: Group) -> None:
        """Grants one group more: of the same draw, with a new number, in which the trajectories of `kept` stay as they
        are and those at the missing indices are attempts anew, under `remade` + 1. It is scored as a whole. `state`
        holds what is kept until the group is put."""
        ...


class GivesUp(Protocol):
    """What a rollout may do beside: cancel what is in flight and will be too old."""

    def foresee(self, version: int) -> None:
        """No group is taken from the buffer at a lower version than this from now on. Attempts of groups that are
        hopeless by then (`RolloutContext.hopeless`) are cancelled: their trajectories have the status ABORTED and the
        reason in `metadata` under CANCELLED, and the group is put as it is, without being scored."""
        ...


class Repaces(Protocol):
    """What a rollout may do beside: change its pace while it works. A schedule that adapts needs it."""

    def repace(self, pace: Pace) -> None:
        """From now on; what is in flight goes on."""
        ...


class Adapts(Protocol):
    """What a schedule may do beside: move its settings by what a run measures. Between two calls of `adapt` it answers
    from the step alone, like any other."""

    def adapt(self, step: int, metrics: Mapping[str, float]) -> Several[str]:
        """After `step` batches, with the metrics of the last (docs/metrics.md): what was changed, a sentence for each
        change with the measurement that caused it. `pace` and `room` are asked again when there is one."""
        ...

    @property
    def room(self) -> int | None:
        """Groups that the buffer may hold; None leaves it as it is."""
        ...

    def begin(self, room: int | None) -> None:
        """Called once, before anything else: the groups that the buffer holds by its own options; None: unknown."""
        ...

    def settings(self) -> Mapping[str, float]:
        """What may move, by name, for the metrics of each step."""
        ...

    def state(self) -> Mapping[str, Any]: ...
    def restore(self, state: Mapping[str, Any]) -> None: ...


class TellsUnchanged(Protocol):
    """What a schedule that adapts may do beside. Without it nothing is said about a phase in which nothing changed."""

    def unchanged(self) -> str:
        """Why nothing was changed until now, in words; "" once something was. Asked at the end of the phase."""
        ...
