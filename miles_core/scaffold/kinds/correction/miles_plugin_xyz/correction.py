"""A clamped importance ratio, on numpy arrays.

    w = min(max(p_trainer / p_engine, low), high)

A trainer hands its own tensors to a correction, so this one works with trainers that compute with numpy. For torch,
write the same lines with `torch.exp` and `torch.clamp`.
"""

from typing import Any

import numpy as np
from miles_core import BuildContext, TokenTerms
from numpy.typing import NDArray

from miles_plugin_xyz.options import XyzOptions


class XyzCorrection:
    """See `miles_core.Correction`."""

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self._low, self._high = options.bounds

    def correct(self, log_ratio: NDArray[Any], row: NDArray[Any]) -> TokenTerms[NDArray[Any]]:
        ratio = np.exp(log_ratio)
        weights = np.clip(ratio, self._low, self._high)
        means = {
            "ratio_mean": ratio,
            "clipped": (weights != ratio).astype(ratio.dtype),
            "mismatch": np.abs(ratio - 1),
        }
        return TokenTerms(weights, means=means, maxima={"ratio_max": ratio})
