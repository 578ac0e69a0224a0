"""What a recipe may write beside `use: xyz`."""

from collections.abc import Mapping

from miles_core import Options
from pydantic import Field


class XyzOptions(Options):
    """How coarse the engines' weights are."""

    bits: int = Field(default=7, ge=1, le=23, description="bits of mantissa that are kept; float32 has 23")

    def card(self) -> Mapping[str, str]:
        return {"relative error": f"at most 2^-{self.bits + 1}"}
