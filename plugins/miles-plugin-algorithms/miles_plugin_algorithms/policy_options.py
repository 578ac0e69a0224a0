"""What a recipe may say of the policy loss. No torch here: recipes are validated without it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from miles_core import Options
from miles_plugin_algorithms.reduction import ReduceOptions

ESTIMATORS = {
    "k1": "k1 = d (its gradient alone is 0 in expectation on-policy: it needs `unbiased` to hold the policy)",
    "k2": "k2 = d^2 / 2 (its gradient is that of the KL in expectation on-policy)",
    "k3": "k3 = exp(-d) - 1 + d (its gradient is that of KL(reference || policy) in expectation on-policy)",
}
"""Estimator -> its formula in words, d = log-prob of the policy minus log-prob of the reference."""


class KlOptions(Options):
    """The KL to a reference model, added to the loss of each token."""

    estimator: Literal["k1", "k2", "k3"] = Field(default="k3", description="k1 = d, k2 = d^2/2, k3 = exp(-d) - 1 + d")
    weight: float = Field(
        default=0.0, ge=0, allow_inf_nan=False, description="its factor in the loss; 0: no reference is loaded"
    )
    unbiased: bool = Field(
        default=False,
        description="multiply it with the token's ratio to the old policy, gradient through both (DeepSeek-V3.2)",
    )


class PolicyOptions(ReduceOptions):
    """The clipped policy loss."""

    clip: (
        tuple[
            Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)], Annotated[float, Field(gt=0, allow_inf_nan=False)]
        ]
        | None
    ) = Field(default=(0.2, 0.2), description="[low, high]: the ratio is clipped to [1 - low, 1 + high]; null: never")
    level: Literal["token", "sequence"] = Field(
        default="token", description="the ratio of each token, or the geometric mean over its sequence (GSPO)"
    )
    dual_clip: float | None = Field(
        default=None, gt=1, allow_inf_nan=False, description="c: with a negative advantage the ratio counts at most c"
    )
    kl: KlOptions = Field(default_factory=KlOptions, description="the KL to a reference model")

    def card(self) -> Mapping[str, str]:
        ratio = "current / old probability of the token"
        if self.level == "sequence":
            ratio = (
                "exp(mean over the sampled tokens of a sequence of log(current / old)), the same for all of them (GSPO)"
            )
        if self.clip is None:
            clip = "none: ratio x advantage"
        else:
            low, high = self.clip
            clip = (
                "the lesser of ratio x advantage and clipped ratio x advantage, "
                f"clipped to [{1 - low:.6g}, {1 + high:.6g}]"
            )
        dual = "none"
        if self.dual_clip is not None:
            dual = f"with a negative advantage the ratio counts at most {self.dual_clip:g}"
        return {
            "ratio": ratio,
            "clip": clip,
            "dual clip": dual,
            "old policy": "the weights at the start of the batch, scored by the trainer, not by the engine",
            **self.reduce_card(),
            "KL to a reference": self._kl_card(),
            "correction": "its weights multiply the clipped term, not the KL; the normaliser stays as it is",
            "not a number, or infinite": "a ratio, KL or loss that is not finite on a trained token stops the step",
        }

    def _kl_card(self) -> str:
        if self.kl.weight == 0:
            return "none (weight 0): no reference model is loaded"
        times = "; times the token's ratio to the old policy, gradient through both" if self.kl.unbiased else ""
        return (
            f"{self.kl.weight:g} x {ESTIMATORS[self.kl.estimator]}{times}; d = log-prob of the policy minus log-prob "
            "of the reference, a term of the loss (not of the reward)"
        )
