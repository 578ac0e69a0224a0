"""What the policy loss and the corrections share: means over rows, and ratios that must not hide what is not finite."""

from __future__ import annotations

import torch
from torch import Tensor


def means_over_rows(values: Tensor, row: Tensor) -> Tensor:
    """The mean of `values` [T] over the tokens of the same row, given to each of them: [T]. `row` int64 [T].

    Carries gradients: each token's mean depends on all tokens of its row.
    """
    counts = torch.bincount(row)
    sums = torch.zeros(len(counts), dtype=values.dtype, device=values.device).index_add(0, row, values)
    return (sums / counts.clamp(min=1))[row]  # rows without a token divide 0 by 1; no token reads them


def pass_on_nonfinite(values: Tensor, log_ratio: Tensor, ratio: Tensor) -> Tensor:
    """`values` where the token's ratio and its logarithm are finite; elsewhere what is not finite itself. All [T].

    Clamping would turn an infinite ratio into an ordinary number. A ratio beyond the range of its dtype (in float32:
    log-probs that differ by more than 88) says that two computations of the same thing do not belong together, and the
    trainer must stop at it.
    """
    whole = (ratio + log_ratio).detach()
    return torch.where(torch.isfinite(whole), values, whole)
