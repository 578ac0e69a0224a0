"""What a recipe may write beside `use: xyz`."""

from collections.abc import Mapping

from miles_core import Options
from pydantic import Field


class XyzOptions(Options):
    """How long is too long."""

    limit: int = Field(default=200, gt=0, description="characters at which the score reaches 0")

    def card(self) -> Mapping[str, str]:
        return {"score": f"1 - characters / {self.limit}, at least 0"}
