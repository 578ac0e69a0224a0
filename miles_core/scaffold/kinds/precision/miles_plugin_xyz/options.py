"""What a recipe may write beside `use: xyz`."""

from collections.abc import Mapping
from typing import Literal

from miles_core import Options
from pydantic import Field


class XyzOptions(Options):
    """What becomes of weights that float16 cannot hold."""

    overflow: Literal["refuse", "clamp"] = Field(default="refuse", description="stop the run, or take the largest one")

    def card(self) -> Mapping[str, str]:
        return {"engines hold": f"float16, rounded to nearest; beyond 65504: {self.overflow}"}
