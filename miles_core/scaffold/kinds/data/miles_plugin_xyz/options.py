"""What a recipe may write beside `use: xyz`."""

from miles_core import Options
from pydantic import Field


class XyzOptions(Options):
    """Which tasks there are."""

    largest: int = Field(default=100, ge=10, description="tasks begin with the numbers from 0 to this one, excluded")
    step: int = Field(default=2, gt=0, description="from one number to the next")
    epochs: int | None = Field(default=None, gt=0, description="how often to go through the tasks; endless when absent")
