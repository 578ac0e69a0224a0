"""Importance weights for what remains of the mismatch between engine and trainer.

    r = exp(log p_trainer - log p_engine) of a sampled token, detached
    tis   w = min(max(r, low), high)          "Your efficient RL framework secretly brings you off-policy RL training"
                                              (fengyao.notion.site/off-policy-rl); truncation: Ionides 2008
    pop   w = r if low <= r <= high else 0    IcePop (Ring-1T, arXiv 2510.18855), "clip-or-pop"
    mask  w = 1 if low <= r <= high else 0    sequence masking, geometric form (arXiv 2512.23075)

At level `sequence`, r of a token is exp(mean of log r over the sampled tokens of its row).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from miles_core import BuildContext, TokenTerms
from miles_plugin_algorithms.correction_options import CorrectionOptions, MaskOptions, PopOptions, TisOptions
from miles_plugin_algorithms.ratio import means_over_rows, pass_on_nonfinite


class _Correction(ABC):
    """Keeps `miles_core.Correction[torch.Tensor]`. Stateless; what the weight is, is the subclass's one line.

    Metrics, the same for all:
    ratio_mean, ratio_max    r of each token, before anything is clamped, at either level
    clipped                  share of tokens whose ratio (at the chosen level) lies outside the bounds
    mismatch                 mean of |r - 1|, r of each token
    sequence_ratio_mean, sequence_ratio_max    at level `sequence`: the ratio that is compared, token-weighted
    """

    def __init__(self, options: CorrectionOptions, context: BuildContext) -> None:
        self.low, self.high = options.bounds
        self.level = options.level

    def correct(self, log_ratio: Tensor, row: Tensor) -> TokenTerms[Tensor]:
        log_ratio = log_ratio.detach()
        token_ratio = torch.exp(log_ratio)
        compared = token_ratio if self.level == "token" else torch.exp(means_over_rows(log_ratio, row))
        outside = (compared < self.low) | (compared > self.high)
        means = {
            "ratio_mean": token_ratio,
            "clipped": outside.to(compared.dtype),
            "mismatch": (token_ratio - 1).abs(),
        }
        maxima = {"ratio_max": token_ratio}
        if self.level == "sequence":
            means["sequence_ratio_mean"] = compared
            maxima["sequence_ratio_max"] = compared
        weights = pass_on_nonfinite(self._weigh(compared, outside), log_ratio, token_ratio)
        return TokenTerms(values=weights, means=means, maxima=maxima)

    @abstractmethod
    def _weigh(self, ratio: Tensor, outside: Tensor) -> Tensor:
        """The weight of each token, [T], from what is compared with the bounds and where it lies outside."""


class TruncatedImportance(_Correction):
    """`tis`: the ratio, clamped to the bounds."""

    def __init__(self, options: TisOptions, context: BuildContext) -> None:
        super().__init__(options, context)

    def _weigh(self, ratio: Tensor, outside: Tensor) -> Tensor:
        return ratio.clamp(self.low, self.high)


class ClipOrPop(_Correction):
    """`pop`: the ratio inside the bounds, 0 outside."""

    def __init__(self, options: PopOptions, context: BuildContext) -> None:
        super().__init__(options, context)

    def _weigh(self, ratio: Tensor, outside: Tensor) -> Tensor:
        return ratio.masked_fill(outside, 0.0)


class Mask(_Correction):
    """`mask`: 1 inside the bounds, 0 outside."""

    def __init__(self, options: MaskOptions, context: BuildContext) -> None:
        super().__init__(options, context)

    def _weigh(self, ratio: Tensor, outside: Tensor) -> Tensor:
        return (~outside).to(ratio.dtype)
