"""A trainer: it scores sequences, takes optimizer steps on batches, and hands out its weights.

The methods are plain functions: they compute. The runtime calls them one at a time, in a thread of the trainer's own
process, and gives the driver coroutines. docs/contracts.md maps them to FSDP2 and Megatron-Core.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from miles_core.contracts.component import ComponentRef
from miles_core.contracts.transport import Delivery, TensorInfo
from miles_core.types.batch import Batch
from miles_core.types.sequence import FloatArray, Sequence


@dataclass(frozen=True, slots=True)
class TrainerFacts:
    """What a trainer says of itself once it is built.

    `tensors` is everything that a full update sends, in order. `shared_prefix`: the prompt that the rows of a group
    have in common is computed once for all of them. `images`: it learns from sequences with images; one that does not
    say so is never given any.
    """

    parameters: int
    trainable: int
    tensors: tuple[TensorInfo, ...]
    shared_prefix: bool = False
    ranks: int = 1
    device: str = "cpu"
    images: bool = False


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one batch did: metrics by name (docs/metrics.md), averaged over the batch's sampled tokens unless the
    name says otherwise."""

    metrics: dict[str, float] = field(default_factory=dict)


class Trainer(Protocol):
    """One trainer rank. After an exception in `step` the weights are those before the step or `load` must be called."""

    def facts(self) -> TrainerFacts: ...

    def begin_phase(self, parts: Mapping[str, ComponentRef]) -> None:
        """Build the `loss` and, if there is one, the `correction` that the batches from now on are learned with.
        Called before a phase's first batch, and after `load`. Optimizer state stays."""
        ...

    def score(self, sequences: Several[Sequence]) -> list[FloatArray]:
        """Log-probs float32 [n] of each sequence's sampled tokens under the current weights, at the temperature of
        their spans (1 where there are none, or where decoding was greedy); 0 elsewhere."""
        ...

    def step(self, batch: Batch) -> StepReport:
        """Take the configured number of optimizer steps on the batch.

        Raises RunError naming the trajectory when a log-prob or loss of a trained token is not finite, and when the
        gradient norm is not.
        """
        ...

    def send(self, version: int) -> Delivery:
        """Hand the current weights to the transport's sending part."""
        ...

    def release(self, version: int) -> None:
        """Free what `send` holds."""
        ...

    def save(self, folder: Path) -> None:
        """Write model, optimizer, schedule and random state into an existing empty folder."""
        ...

    def load(self, folder: Path) -> None:
        """Continue exactly from what `save` wrote. Raises RequestError when it belongs to another model."""
        ...

    def export(self, folder: Path) -> None:
        """Write a Hugging Face directory that transformers loads, into an existing empty folder."""
        ...

    def close(self) -> None: ...
