"""The clipped policy loss, on numpy arrays.

    ratio = p / p_old            p_old: under the weights at the start of the batch
    loss  = -min(ratio A, clip(ratio, 1 - c, 1 + c) A) w        A: advantage, w: importance weight

A trainer hands its own tensors to a loss, so this one works with trainers that compute with numpy. For torch, write the
same lines with torch's functions: the trainer takes the gradient.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from miles_core import BuildContext, LossInputs, Row, TokenTerms
from numpy.typing import NDArray

from miles_plugin_xyz.options import XyzOptions


class XyzLoss:
    """Every sampled token of a step weighs the same. See `miles_core.Loss`."""

    needs_rollout_logprobs = False
    needs_reference = False

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self._clip = options.clip

    def weights(self, rows: Sequence[Row]) -> list[NDArray[np.float32]]:
        total = max(sum(row.sequence.sampled_count for row in rows), 1)
        return [(row.sequence.sampled / total).astype(np.float32) for row in rows]

    def per_token(self, inputs: LossInputs[NDArray[Any]]) -> TokenTerms[NDArray[Any]]:
        ratio = np.exp(inputs.logprobs - inputs.old_logprobs)
        clipped = np.clip(ratio, 1 - self._clip, 1 + self._clip)
        gain = np.minimum(ratio * inputs.advantages, clipped * inputs.advantages)
        outside = (clipped != ratio).astype(ratio.dtype)
        return TokenTerms(-gain * inputs.correction, means={"clipped": outside})
