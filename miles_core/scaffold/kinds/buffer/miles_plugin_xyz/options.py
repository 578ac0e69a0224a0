"""What a recipe may write beside `use: xyz`."""

from miles_core import Options
from pydantic import Field


class XyzOptions(Options):
    """How much may wait."""

    capacity: float = Field(default=2.0, gt=0, description="finished groups that may wait, as a multiple of a batch")
