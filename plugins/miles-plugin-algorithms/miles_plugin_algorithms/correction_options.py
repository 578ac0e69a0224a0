"""What a recipe may say of importance corrections. No torch here: recipes are validated without it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from miles_core import Options


def _ordered(bounds: tuple[float, float]) -> tuple[float, float]:
    low, high = bounds
    if not (math.isfinite(low) and math.isfinite(high) and 0 <= low < high):
        raise ValueError(f"bounds are [low, high] with 0 <= low < high, and these are [{low:g}, {high:g}]")
    if not low <= 1 <= high:
        raise ValueError(f"bounds [{low:g}, {high:g}] leave out 1, the ratio where engine and trainer agree")
    return bounds


Bounds = Annotated[tuple[float, float], AfterValidator(_ordered)]


class CorrectionOptions(Options):
    """What all corrections have in common."""

    bounds: Bounds
    level: Literal["token", "sequence"] = Field(
        default="token", description="the ratio of each token, or the geometric mean over its sequence"
    )

    def _card(self, weight: str) -> Mapping[str, str]:
        ratio = "the trainer's probability of the token at the start of the batch / the engine's when it sampled it"
        if self.level == "sequence":
            ratio += "; its geometric mean over the sampled tokens of a sequence, the same for all of them"
        return {
            "mismatch ratio": ratio,
            "weight": weight,
            "gradient": "none through the weight; it multiplies the token's policy loss",
            "normaliser": "unchanged: a token of weight 0 still counts",
            "not a number, or infinite": "a ratio that is not finite is passed on and stops the step, never clamped",
        }


class TisOptions(CorrectionOptions):
    """Truncated importance sampling."""

    bounds: Bounds = Field(default=(0.0, 2.0), description="[low, high]: what the ratio is clamped to")

    def card(self) -> Mapping[str, str]:
        low, high = self.bounds
        return self._card(f"the ratio, clamped to [{low:g}, {high:g}]")


class PopOptions(CorrectionOptions):
    """Clip-or-pop."""

    bounds: Bounds = Field(default=(0.5, 5.0), description="[low, high]: outside of it the weight is 0")

    def card(self) -> Mapping[str, str]:
        low, high = self.bounds
        return self._card(f"the ratio inside [{low:g}, {high:g}], 0 outside")


class MaskOptions(CorrectionOptions):
    """Keep or drop."""

    bounds: Bounds = Field(default=(0.5, 2.0), description="[low, high]: outside of it the weight is 0")
    level: Literal["token", "sequence"] = Field(
        default="sequence", description="the ratio of each token, or the geometric mean over its sequence"
    )

    def card(self) -> Mapping[str, str]:
        low, high = self.bounds
        return self._card(f"1 where the ratio lies inside [{low:g}, {high:g}], 0 outside")
