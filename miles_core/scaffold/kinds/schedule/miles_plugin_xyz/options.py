"""What a recipe may write beside `use: xyz`."""

from collections.abc import Mapping

from miles_core import ScheduleOptions
from pydantic import Field


class XyzOptions(ScheduleOptions):
    """How much a step takes (`groups_per_step`, `group_size`), and when weights are published."""

    warm_up: int = Field(default=10, ge=0, description="steps at the beginning that publish every time")
    every: int = Field(default=2, gt=0, description="after that, steps between publications")

    def card(self) -> Mapping[str, str]:
        return {"publishes": f"after each of the first {self.warm_up} steps, then after every {self.every}"}
