"""What a recipe may write beside `use: xyz`."""

from collections.abc import Mapping

from miles_core import Options
from pydantic import Field, PositiveInt


class XyzOptions(Options):
    """The rules of the game."""

    turns: PositiveInt = Field(default=4, description="guesses that the model has")
    seconds: float = Field(default=60.0, gt=0, description="how long one answer of the model may take")
    calls: PositiveInt = Field(default=64, description="games that may wait for an answer at once")

    def card(self) -> Mapping[str, str]:
        return {"reward": f"1 for the first guess, 1/{self.turns} less for each further one, 0 when none is right"}
