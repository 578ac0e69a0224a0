"""The `sync` schedule: a step's groups are made, trained, and published before the next step's are started."""

from __future__ import annotations

from miles_core.contracts.component import BuildContext
from miles_core.contracts.options import ScheduleOptions
from miles_core.contracts.pace import Pace


class SyncSchedule:
    """See `contracts.rollout.Schedule`."""

    pace = Pace()

    def __init__(self, options: ScheduleOptions, context: BuildContext) -> None:
        self.group_size = options.group_size
        self.groups_per_step = options.groups_per_step

    def reach(self, step: int, taken: bool) -> int | None:
        return step + 1

    def publishes(self, step: int) -> bool:
        return True
