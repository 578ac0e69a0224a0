"""Advantage and loss of the toy ring, in numpy."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Several

import numpy as np

from miles_core.contracts.component import BuildContext
from miles_core.contracts.learning import LossInputs, TokenTerms
from miles_core.contracts.options import NoOptions
from miles_core.types.batch import Row
from miles_core.types.sequence import Array, FloatArray
from miles_core.types.trajectory import Group


class ToyAdvantage:
    """Reward minus the mean reward of the group, the same for every token of a trajectory."""

    def __init__(self, options: NoOptions, context: BuildContext) -> None:
        pass

    def compute(self, groups: Several[Group]) -> Mapping[str, tuple[FloatArray, ...]]:
        found: dict[str, tuple[FloatArray, ...]] = {}
        for group in groups:
            rewards = [t.reward for t in group.trajectories if t.reward is not None]
            baseline = sum(rewards) / len(rewards)
            for t in group.trajectories:
                if t.reward is not None:
                    value = np.float32(t.reward - baseline)
                    found[t.id] = tuple(np.full(len(s), value, np.float32) for s in t.sequences)
        return found


class ToyLoss:
    """-advantage x log-prob x importance weight; every sampled token of the step weighs the same."""

    needs_rollout_logprobs = False
    needs_reference = False

    def __init__(self, options: NoOptions, context: BuildContext) -> None:
        pass

    def weights(self, rows: Several[Row]) -> list[FloatArray]:
        total = sum(row.sequence.sampled_count for row in rows)
        return [(row.sequence.sampled / np.float32(max(total, 1))).astype(np.float32) for row in rows]

    def per_token(self, inputs: LossInputs[Array]) -> TokenTerms[Array]:
        return TokenTerms(-inputs.advantages * inputs.logprobs * inputs.correction)
