"""Estimators of the KL to a reference model, from one sampled token each.

With d = log p - log p_ref (policy minus reference), for tokens sampled from p, the expectation of
k1 = d, k3 = exp(-d) - 1 + d is KL(p || p_ref), and k2 = d^2 / 2 is close to it for small d.
Sources: http://joschu.net/blog/kl-approx.html; k3 in the loss: GRPO (arXiv 2402.03300, equation 4). The gradients
differ from that of the KL: on-policy, that of k1 is 0 in expectation, that of k2 is the KL's own, and that of k3 is the
gradient of KL(p_ref || p), the other direction (2506.09477).
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor


def reference_kl(estimator: Literal["k1", "k2", "k3"], logprobs: Tensor, reference_logprobs: Tensor) -> Tensor:
    """The estimate for each token, [T]. Carries the gradient of `logprobs`. An overflow of k3 stays infinite."""
    difference = logprobs - reference_logprobs
    match estimator:
        case "k1":
            return difference
        case "k2":
            return difference.square() / 2
        case "k3":
            return torch.expm1(-difference) + difference  # expm1 keeps the digits that exp(-d) - 1 loses near 0
