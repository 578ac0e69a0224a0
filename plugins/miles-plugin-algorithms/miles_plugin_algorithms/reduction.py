"""How the tokens of an optimizer step are weighted against each other.

    sequence-mean    w = 1 / (N * n_k)   GRPO (DeepSeekMath, arXiv 2402.03300, equation 3): mean over a trajectory's
                                         tokens, then mean over trajectories
    token-mean       w = 1 / M           DAPO (2503.14476, "token-level loss"): every token of the step counts alike
    constant-length  w = 1 / (N * L)     Dr.GRPO (2503.20783): a constant L instead of the length

N: trajectories of the step with at least one sampled token. n_k: sampled tokens of trajectory k, over all its
sequences. M: sampled tokens of the step. The weights depend on masks alone, so they are known before any forward pass
and micro-batches of any size add up to the whole step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence as Several
from typing import Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, PositiveInt, model_validator

from miles_core import Options, Row

Reduce = Literal["sequence-mean", "token-mean", "constant-length"]


class ReduceOptions(Options):
    """The part of a loss's options that decides the normaliser."""

    reduce: Reduce = Field(
        default="sequence-mean",
        description="mean over a trajectory's tokens then over trajectories; over all tokens; or over a fixed length",
    )
    length: PositiveInt | None = Field(
        default=None, description="the fixed length of reduce: constant-length, in tokens"
    )

    @model_validator(mode="after")
    def _length_goes_with_constant_length(self) -> ReduceOptions:
        if self.reduce == "constant-length" and self.length is None:
            raise ValueError("reduce: constant-length needs length, usually the most new tokens that sampling allows")
        if self.reduce != "constant-length" and self.length is not None:
            raise ValueError(f"length is only read with reduce: constant-length, and reduce is {self.reduce}")
        return self

    def reduce_card(self) -> dict[str, str]:
        """The normaliser in words, for the card of the loss."""
        meaning = {
            "sequence-mean": "mean over the sampled tokens of a trajectory (all its sequences together), then mean "
            "over the trajectories of the optimizer step",
            "token-mean": "mean over all sampled tokens of the optimizer step; long trajectories count more",
            "constant-length": f"sum over tokens, divided by {self.length} tokens and by the trajectories of the "
            "optimizer step",
        }
        card = {"normaliser": meaning[self.reduce]}
        if self.reduce != "token-mean":
            card["trajectory without a sampled token"] = "adds nothing and is not counted in the number of trajectories"
        return card

    def weights(self, rows: Several[Row]) -> list[npt.NDArray[np.float32]]:
        """The weight of each token of each row of one whole optimizer step: float32 [n], 0 where none was sampled."""
        tokens = Counter[str]()
        for row in rows:
            tokens[row.trajectory] += row.sequence.sampled_count
        trajectories = sum(1 for count in tokens.values() if count)
        total = sum(tokens.values())

        def of(row: Row) -> float:
            if not row.sequence.sampled_count:
                return 0.0
            match self.reduce:
                case "sequence-mean":
                    return 1 / (trajectories * tokens[row.trajectory])
                case "token-mean":
                    return 1 / total
                case "constant-length":
                    assert self.length is not None  # checked when the options were made
                    return 1 / (trajectories * self.length)

        return [np.where(row.sequence.sampled, np.float32(of(row)), np.float32(0)) for row in rows]
