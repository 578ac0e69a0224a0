"""What a recipe may write beside `use: xyz`."""

from miles_core import Options
from pydantic import Field, PositiveInt


class XyzOptions(Options):
    """How patient to be."""

    times: PositiveInt = Field(default=1, description="how often a failed attempt is made again")
    pause: float = Field(default=1.0, ge=0, description="seconds before that")
