"""What turns rewards into gradients: advantages (numpy, in the driver), correction and loss (tensors, in the trainer).

The trainer is blind to the algorithm: it computes log-probs of sampled tokens, asks the correction for importance
weights and the loss for one number a token, multiplies with the loss's own fixed token weights, and sums. Since the
weights are known before any forward pass, micro-batches of any size add up to the same gradient.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from miles_core.types.batch import Row
from miles_core.types.sequence import FloatArray
from miles_core.types.trajectory import Group

Tensor = TypeVar("Tensor")
"""The trainer's own tensor type: opaque to the core."""


class Advantage(Protocol):
    """Group scores to advantages of tokens."""

    def compute(self, groups: Several[Group]) -> Mapping[str, tuple[FloatArray, ...]]:
        """For every trajectory id: one float32 [n] array for each of its sequences, read where tokens were sampled.

        Every trajectory given has a reward. A group may be smaller than the recipe's group_size.
        """
        ...


@dataclass(frozen=True, slots=True, eq=False)
class LossInputs(Generic[Tensor]):
    """The sampled tokens of one micro-batch, flat: T of them, whole rows in order.

    logprobs            [T] under the current weights; carries the gradient
    old_logprobs        [T] under the weights at the start of the batch; detached
    rollout_logprobs    [T] as the engine reported them; None for demonstrations
    reference_logprobs  [T] under the reference weights; None unless the loss needs them
    advantages          [T]
    correction          [T] importance weights of the mismatch; ones without a correction; detached
    row                 [T] int64, which row of the micro-batch a token belongs to
    trajectory          [T] int64, which trajectory of the micro-batch it belongs to
    """

    logprobs: Tensor
    old_logprobs: Tensor
    rollout_logprobs: Tensor | None
    reference_logprobs: Tensor | None
    advantages: Tensor
    correction: Tensor
    row: Tensor
    trajectory: Tensor


@dataclass(frozen=True, slots=True, eq=False)
class TokenTerms(Generic[Tensor]):
    """Numbers for each token. `values` [T]; `means` and `maxima` are metrics by name, [T] each, which the trainer
    reduces over all sampled tokens of the batch."""

    values: Tensor
    means: Mapping[str, Tensor] = field(default_factory=dict)
    maxima: Mapping[str, Tensor] = field(default_factory=dict)


class Loss(Protocol[Tensor]):
    """A loss for each sampled token, and how tokens are weighted against each other."""

    @property
    def needs_rollout_logprobs(self) -> bool: ...

    @property
    def needs_reference(self) -> bool: ...

    def weights(self, rows: Several[Row]) -> list[FloatArray]:
        """The weight of each token, float32 [n] for each row, 0 where not sampled. `rows` are those of one whole
        optimizer step: this is where the normaliser of the step is decided."""
        ...

    def per_token(self, inputs: LossInputs[Tensor]) -> TokenTerms[Tensor]:
        """The unweighted loss of each token. The step's loss is the sum of weights x values."""
        ...


class Correction(Protocol[Tensor]):
    """Importance weights for what remains of the mismatch between engine and trainer."""

    def correct(self, log_ratio: Tensor, row: Tensor) -> TokenTerms[Tensor]:
        """`log_ratio` [T] = old log-prob (trainer) - rollout log-prob (engine), detached. `values` are the weights,
        detached: 1 where both agree, and a function of the token's own row alone."""
        ...
