"""What a recipe may write beside `use: xyz`."""

from collections.abc import Mapping

from miles_core import Options
from pydantic import Field


class XyzOptions(Options):
    """How far a policy may move within one batch."""

    clip: float = Field(default=0.2, gt=0, lt=1, description="largest change of a token's probability that still pays")

    def card(self) -> Mapping[str, str]:
        return {"clip": f"ratio of new and old probability, to [{1 - self.clip:g}, {1 + self.clip:g}]"}
