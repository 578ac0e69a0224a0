"""What a recipe may write beside `use: xyz`."""

from collections.abc import Mapping

from miles_core import Options
from pydantic import Field, PositiveInt


class XyzOptions(Options):
    """The rules of the game."""

    turns: PositiveInt = Field(default=4, description="guesses that the model has")

    def card(self) -> Mapping[str, str]:
        return {"reward": f"1 for the first guess, 1/{self.turns} less for each further one, 0 when none is right"}
