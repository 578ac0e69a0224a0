"""Log-probs of sampled tokens under the current weights, without a gradient."""

from __future__ import annotations

from collections.abc import Sequence as Several

import numpy as np
import torch

from miles_plugin_torch.trainer.packing import FloatArray, PackRow, pack
from miles_plugin_torch.trainer.policy import Policy
from miles_plugin_torch.trainer.rows import scatter


def score_rows(
    policy: Policy, packed: Several[PackRow], lengths: Several[int], micro_tokens: int, share_prefix: bool
) -> list[FloatArray]:
    """float32 [n] for each of the `lengths` rows: log-probs at the targets of the packed ones, 0 elsewhere."""
    scores = [np.zeros(length, dtype=np.float32) for length in lengths]
    with torch.no_grad():
        for batch in pack(packed, micro_tokens, share_prefix):
            scatter(policy(batch), batch, scores)
    return scores
