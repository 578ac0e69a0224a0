"""What a recipe may write beside `use: xyz`."""

from miles_core import Options
from pydantic import Field, PositiveInt


class XyzOptions(Options):
    """How often to ask, and with which words."""

    turns: PositiveInt = Field(default=2, description="answers in all, the first one included")
    again: str = Field(default="Look again: ", min_length=1, description="what the model is told after an answer")
