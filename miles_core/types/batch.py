"""A batch: what the trainer learns from in one step."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from miles_core.errors import ValidationError
from miles_core.types.sequence import FloatArray, Sequence


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One sequence of a batch with what the driver computed for it.

    `advantages` float32 [n], read where `sequence.sampled`. `trajectory` and `group` are ids: a trajectory's rows
    are never split over two optimizer steps, and rows of one group usually share their prompt's tokens.
    """

    sequence: Sequence
    advantages: FloatArray
    trajectory: str
    group: str

    def __post_init__(self) -> None:
        if self.advantages.shape != self.sequence.tokens.shape or self.advantages.dtype != np.float32:
            raise ValidationError(
                f"Row.advantages of trajectory {self.trajectory!r} is {self.advantages.dtype} "
                f"{self.advantages.shape}, expected float32 {self.sequence.tokens.shape}"
            )
        if not np.isfinite(self.advantages[self.sequence.sampled]).all():
            raise ValidationError(f"Row.advantages of trajectory {self.trajectory!r} is not finite on a sampled token")


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The rows of one step, in submission order. `step` is the run's step number, from 0."""

    step: int
    rows: tuple[Row, ...]

    def __post_init__(self) -> None:
        if not self.rows:
            raise ValidationError(f"Batch.rows of step {self.step} is empty")

    @property
    def sampled_count(self) -> int:
        return sum(row.sequence.sampled_count for row in self.rows)

    @property
    def trajectory_ids(self) -> tuple[str, ...]:
        """Each trajectory once, in order of its first row."""
        return tuple(dict.fromkeys(row.trajectory for row in self.rows))
