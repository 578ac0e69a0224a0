"""What a recipe may write beside `use: xyz`."""

from collections.abc import Mapping
from typing import Self

from miles_core import Options
from pydantic import Field, model_validator


class XyzOptions(Options):
    """How far a weight may lie from 1."""

    bounds: tuple[float, float] = Field(default=(0.5, 2.0), description="lowest and highest weight of a token")

    @model_validator(mode="after")
    def _around_one(self) -> Self:
        low, high = self.bounds
        if not 0 <= low <= 1 <= high:
            raise ValueError(f"the bounds are {low} and {high}, expected 0 <= low <= 1 <= high")
        return self

    def card(self) -> Mapping[str, str]:
        low, high = self.bounds
        return {"weight": f"p of the trainer / p of the engine, clamped to [{low:g}, {high:g}]"}
