"""The pace of a schedule: when a group may be started, in which order groups leave, and what an update interrupts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from miles_core.contracts.engine import PauseMode


class Refill(StrEnum):
    """When the slots of groups in flight become free again.

    ROUND: when everything in flight has ended, all at once: what engines compute together depends on tasks alone;
    GROUP: when a whole group has ended;
    SAMPLE: with each trajectory that ends, whichever group it belongs to: stragglers keep nobody waiting.
    """

    ROUND = "round"
    GROUP = "group"
    SAMPLE = "sample"


@dataclass(frozen=True, slots=True)
class Pace:
    """How a rollout goes about what it was granted.

    refill     when slots become free
    in_flight  how many trajectories may be made at once; None: as many as were granted
    ordered    groups leave the buffer in the order in which they were submitted, not in which they finished
    settles    weights are published only when nothing is in flight
    pause      what happens to requests in flight when weights are published all the same
    """

    refill: Refill = Refill.ROUND
    in_flight: int | None = None
    ordered: bool = False
    settles: bool = False
    pause: PauseMode = PauseMode.RETRACT
