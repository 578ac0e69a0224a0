"""A trajectory: one attempt at a task; a group: the trajectories that are normalised together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from miles_core.errors import ValidationError
from miles_core.types.sequence import Sequence
from miles_core.types.task import Task

CANCELLED = "cancelled"
"""Key of a trajectory's metadata: why the attempt was cancelled in flight. Its status is ABORTED."""

REMADE = "remade"
"""Key of a trajectory's metadata: it was made again, for the so-manieth time in its draw, because another was stale."""


class Status(StrEnum):
    """How an attempt ended."""

    COMPLETED = "completed"
    TRUNCATED = "truncated"
    ABORTED = "aborted"
    FAILED = "failed"


class Disposition(StrEnum):
    """What became of a trajectory. Every one ends in exactly one of these; the audit counts them."""

    TRAINED = "trained"
    FILTERED = "filtered"
    STALE = "stale"
    ABORTED = "aborted"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SURPLUS = "surplus"
    BUFFERED = "buffered"
    EVALUATION = "evaluation"


@dataclass(frozen=True, slots=True)
class Score:
    """One reward's verdict on one trajectory. `value` is finite; `detail` is for people (why this score)."""

    value: float
    detail: str = ""

    def __post_init__(self) -> None:
        if not isinstance(self.value, int | float) or not math.isfinite(self.value):
            raise ValidationError(f"Score.value is {self.value!r}, expected a finite number")


@dataclass(frozen=True, slots=True, eq=False)
class Trajectory:
    """One attempt at a task.

    `index` is its place in its group, from 0. `reward` is None when there is no verdict (never 0 for that).
    `scores` are the named inputs of the reward. A linear session gives one sequence, a branching one gives several;
    a failed or aborted attempt may have none. `text` is the model's final answer, which rewards read.
    Raises ValidationError that names the field.
    """

    id: str
    task_id: str
    index: int
    sequences: tuple[Sequence, ...]
    status: Status = Status.COMPLETED
    text: str = ""
    reward: float | None = None
    scores: Mapping[str, Score | None] = field(default_factory=dict)
    metadata: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.index < 0:
            raise ValidationError(f"Trajectory.index of {self.id!r} is {self.index}, expected 0 or more")
        if self.reward is not None and not math.isfinite(self.reward):
            raise ValidationError(
                f"Trajectory.reward of {self.id!r} is {self.reward}, expected a finite number or None"
            )
        if not self.sequences and self.status in (Status.COMPLETED, Status.TRUNCATED):
            raise ValidationError(f"Trajectory.sequences of {self.id!r} is empty, but its status is {self.status}")

    @property
    def sampled_count(self) -> int:
        return sum(sequence.sampled_count for sequence in self.sequences)

    @property
    def oldest_version(self) -> int | None:
        """The lowest weight version of any sampled token; None when nothing was sampled by an engine."""
        versions = [span.version for sequence in self.sequences for span in sequence.spans]
        return min(versions, default=None)

    def judged(self, reward: float | None, scores: Mapping[str, Score | None]) -> Trajectory:
        return replace(self, reward=reward, scores=dict(scores))


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """The trajectories of one task that are generated, normalised and consumed together.

    `number` counts groups in submission order over the whole run: it orders a batch, and makes `id` unique.
    `draw` counts how often this task has been drawn before: randomness depends on it.
    """

    task: Task
    number: int
    draw: int
    trajectories: tuple[Trajectory, ...]

    @property
    def id(self) -> str:
        return f"g{self.number}"

    @property
    def oldest_version(self) -> int | None:
        versions = [v for v in (t.oldest_version for t in self.trajectories) if v is not None]
        return min(versions, default=None)

    @property
    def aborted(self) -> bool:
        return any(t.status is Status.ABORTED for t in self.trajectories)

    @property
    def remade(self) -> int:
        """How often trajectories of this draw have been made again."""
        return max((int(t.metadata.get(REMADE, 0)) for t in self.trajectories), default=0)

    @property
    def cancelled(self) -> str:
        """Why attempts of it were cancelled in flight; "" when none was."""
        return next((str(t.metadata[CANCELLED]) for t in self.trajectories if CANCELLED in t.metadata), "")

    def replacing(self, trajectories: tuple[Trajectory, ...]) -> Group:
        return replace(self, trajectories=trajectories)
