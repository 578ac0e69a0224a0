"""What a recipe may write beside `use: xyz`."""

from collections.abc import Mapping
from typing import Self

from miles_core import Options
from pydantic import Field, model_validator


class XyzOptions(Options):
    """Between which lengths a group is kept."""

    shortest: int = Field(default=0, ge=0, description="characters of an answer, on average over the group")
    longest: int = Field(default=1000, gt=0, description="characters of an answer, on average over the group")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        if self.shortest > self.longest:
            raise ValueError(f"shortest is {self.shortest}, above longest, {self.longest}: no group would be kept")
        return self

    def card(self) -> Mapping[str, str]:
        return {"kept": f"{self.shortest} to {self.longest} characters on average"}
