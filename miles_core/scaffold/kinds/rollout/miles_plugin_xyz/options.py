"""What a recipe may write beside `use: xyz`."""

from miles_core import Options
from pydantic import Field, PositiveInt


class XyzOptions(Options):
    """How much at once, and when to give up."""

    in_flight: PositiveInt = Field(default=8, description="groups that are made at once")
    patience: PositiveInt = Field(default=200, description="groups dropped in a row after which the run stops")
