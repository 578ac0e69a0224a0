"""From groups to a batch: who is trained, with which advantages."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass

import numpy as np

from miles_core.contracts.learning import Advantage
from miles_core.rollout.staleness import OLD_TOKENS
from miles_core.types.batch import Batch, Row
from miles_core.types.sequence import FloatArray
from miles_core.types.trajectory import Disposition, Group, Status, Trajectory


@dataclass(frozen=True, slots=True)
class Chosen:
    """The groups, shrunk to the trajectories that can be trained; and what became of every trajectory."""

    groups: tuple[Group, ...]
    dispositions: Mapping[str, Disposition]


def choose(groups: Several[Group], needs_reward: bool) -> Chosen:
    """A trajectory is trained when it has sampled tokens and, if advantages are computed, a reward.

    What failed has no verdict: it leaves its group, which is then normalised over those that remain.
    """
    dispositions: dict[str, Disposition] = {}
    kept: list[Group] = []
    for group in groups:
        trained = tuple(t for t in group.trajectories if _trainable(t, needs_reward))
        ids = {t.id for t in trained}
        for trajectory in group.trajectories:
            dispositions[trajectory.id] = Disposition.TRAINED if trajectory.id in ids else _why_not(trajectory)
        if trained:
            kept.append(group.replacing(trained))
    return Chosen(tuple(kept), dispositions)


def make_batch(step: int, groups: Several[Group], advantage: Advantage | None) -> Batch:
    """The rows of a step. Without an advantage estimator (supervised phases) every advantage is 1."""
    computed = advantage.compute(groups) if advantage is not None else {}
    rows = [
        Row(sequence, values, trajectory.id, group.id)
        for group in groups
        for trajectory in group.trajectories
        for sequence, values in zip(trajectory.sequences, computed.get(trajectory.id) or _ones(trajectory), strict=True)
    ]
    return Batch(step, tuple(rows))


def _ones(trajectory: Trajectory) -> tuple[FloatArray, ...]:
    return tuple(np.ones(len(sequence), np.float32) for sequence in trajectory.sequences)


def _trainable(trajectory: Trajectory, needs_reward: bool) -> bool:
    if trajectory.status in (Status.FAILED, Status.ABORTED) or not trajectory.sampled_count:
        return False
    return trajectory.reward is not None or not needs_reward


def _why_not(trajectory: Trajectory) -> Disposition:
    if OLD_TOKENS in trajectory.metadata and not trajectory.sampled_count:
        return Disposition.STALE
    return Disposition.ABORTED if trajectory.status is Status.ABORTED else Disposition.FAILED
