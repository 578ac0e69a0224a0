"""The clipped policy loss of each sampled token.

    r = exp(log p - log p_old)
    loss = -w * min(r * A, clip(r, 1 - low, 1 + high) * A)  +  weight * KL

Sources: PPO (arXiv 1707.06347, equation 7). GRPO (DeepSeekMath, 2402.03300, equation 3): the same with a KL term in the
loss. DAPO (2503.14476, "Clip-Higher"): low and high differ. Dual clip (1912.09729): with A < 0 the loss is at
most -c * A. GSPO (2507.18071, equations 5 to 7): r is the geometric mean over the sequence, one for all its tokens.
`kl.unbiased` (DeepSeek-V3.2, 2512.02556): the KL estimate times the token's r, so that its expectation over the old
policy's tokens, and the gradient of that, are those of the KL under the current policy.
w is the importance correction of the mismatch (decoupled PPO, 2110.00641): it multiplies the clipped term only.

Nothing that is not finite is repaired: a token's ratio that is NaN, or that overflows, becomes the token's value, even
where clipping or the mean over a sequence would have hidden it, so that the trainer stops the step and names the
trajectory.
"""

from __future__ import annotations

from collections.abc import Sequence as Several

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from miles_core import BuildContext, LossInputs, Row, TokenTerms
from miles_plugin_algorithms.kl import reference_kl
from miles_plugin_algorithms.policy_options import PolicyOptions
from miles_plugin_algorithms.ratio import means_over_rows, pass_on_nonfinite


class PolicyLoss:
    """Keeps `miles_core.Loss[torch.Tensor]`. Stateless."""

    def __init__(self, options: PolicyOptions, context: BuildContext) -> None:
        self.options = options

    @property
    def needs_rollout_logprobs(self) -> bool:
        """A policy gradient is about tokens that the policy sampled: demonstrations are refused."""
        return True

    @property
    def needs_reference(self) -> bool:
        return self.options.kl.weight > 0

    def weights(self, rows: Several[Row]) -> list[npt.NDArray[np.float32]]:
        return self.options.weights(rows)

    def per_token(self, inputs: LossInputs[Tensor]) -> TokenTerms[Tensor]:
        """Values [T] and metrics:

        ratio, ratio_max                    r as it enters the loss, before clipping
        clip_fraction_low                   tokens with A < 0 whose r fell below 1 - low
        clip_fraction_high                  tokens with A > 0 whose r rose above 1 + high
        clip_fraction                       both; clip_fraction_dual beside it where a dual clip is set
        old_kl_k1, old_kl_k3                estimates of KL(old || current) from tokens that the old policy sampled
        reference_kl                        the KL as it enters the loss, without its weight; where it has one
        """
        token_log_ratio = inputs.logprobs - inputs.old_logprobs
        token_ratio = torch.exp(token_log_ratio)
        ratio = token_ratio
        if self.options.level == "sequence":
            ratio = torch.exp(means_over_rows(token_log_ratio, inputs.row))
        values = -self._surrogate(ratio, inputs.advantages) * inputs.correction
        values = pass_on_nonfinite(values, token_log_ratio, token_ratio)

        metrics = self._clip_metrics(ratio.detach(), inputs.advantages)
        metrics |= _old_kl(token_log_ratio.detach())
        if self.needs_reference:
            assert inputs.reference_logprobs is not None, "needs_reference is True: the trainer gives them"
            kl = reference_kl(self.options.kl.estimator, inputs.logprobs, inputs.reference_logprobs)
            if self.options.kl.unbiased:
                kl = kl * token_ratio
            values = values + self.options.kl.weight * kl
            metrics["reference_kl"] = kl.detach()
        return TokenTerms(values=values, means=metrics, maxima={"ratio_max": ratio.detach()})

    def _surrogate(self, ratio: Tensor, advantages: Tensor) -> Tensor:
        """What is to be maximised, [T]."""
        surrogate = ratio * advantages
        if self.options.clip is not None:
            low, high = self.options.clip
            surrogate = torch.minimum(surrogate, ratio.clamp(1 - low, 1 + high) * advantages)
        if self.options.dual_clip is not None:
            bounded = torch.maximum(surrogate, self.options.dual_clip * advantages)
            surrogate = torch.where(advantages < 0, bounded, surrogate)
        return surrogate

    def _clip_metrics(self, ratio: Tensor, advantages: Tensor) -> dict[str, Tensor]:
        metrics = {"ratio": ratio}
        if self.options.clip is not None:
            low, high = self.options.clip
            below = (advantages < 0) & (ratio < 1 - low)
            above = (advantages > 0) & (ratio > 1 + high)
            metrics["clip_fraction_low"] = below.to(ratio.dtype)
            metrics["clip_fraction_high"] = above.to(ratio.dtype)
            metrics["clip_fraction"] = (below | above).to(ratio.dtype)
        if self.options.dual_clip is not None:
            metrics["clip_fraction_dual"] = ((advantages < 0) & (ratio > self.options.dual_clip)).to(ratio.dtype)
        return metrics


def _old_kl(log_ratio: Tensor) -> dict[str, Tensor]:
    """k1 and k3 of KL(old || current), http://joschu.net/blog/kl-approx.html with q = old, p = current."""
    return {"old_kl_k1": -log_ratio, "old_kl_k3": torch.expm1(log_ratio) - log_ratio}
