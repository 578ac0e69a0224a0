"""What a recipe may write beside `use: xyz`."""

from collections.abc import Mapping

from miles_core import Options
from pydantic import Field


class XyzOptions(Options):
    """How old is too old."""

    max_age: int = Field(default=1, ge=0, description="weight versions; 0: only what the current weights made")

    def card(self) -> Mapping[str, str]:
        return {"stale": f"more than {self.max_age} weight versions behind"}
