"""Builders of what the algorithms are given: trajectories, groups, rows and flat loss inputs."""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Several

import numpy as np
import pytest
import torch
from hypothesis import settings

from miles_core import BuildContext, Group, LossInputs, Row, Sequence, Task, Trajectory

torch.set_num_threads(1)
settings.register_profile("no-deadline", deadline=None)  # a shared machine makes single examples slow now and then
settings.load_profile("no-deadline")


@pytest.fixture(scope="session")
def context() -> BuildContext:
    return BuildContext(seed=0, name="test")


def sequence(mask: Several[int]) -> Sequence:
    """A demonstration-like row whose tokens are sampled where the mask is 1; log-probs play no part here."""
    n = len(mask)
    return Sequence(
        tokens=np.arange(n, dtype=np.int32),
        sampled=np.array(mask, dtype=np.bool_),
        logprobs=None,
        versions=np.zeros(n, dtype=np.int32),
    )


def group_of(rewards: Several[float | None], *, number: int = 0, masks: Several[Several[int]] | None = None) -> Group:
    """A group of one-sequence trajectories `g<number>-<place>`; every mask is [0, 1, 1] unless given."""
    masks = masks or [[0, 1, 1]] * len(rewards)
    trajectories = tuple(
        Trajectory(id=f"g{number}-{i}", task_id="t", index=i, sequences=(sequence(mask),), reward=reward)
        for i, (reward, mask) in enumerate(zip(rewards, masks, strict=True))
    )
    return Group(task=Task(id="t", prompt="?"), number=number, draw=0, trajectories=trajectories)


def values_of(component: object, *groups: Group) -> list[float]:
    """The advantage of each trajectory, read at its sampled tokens, which must all agree."""
    result = component.compute(groups)  # type: ignore[attr-defined]
    values = []
    for group in groups:
        for trajectory in group.trajectories:
            arrays = result[trajectory.id]
            assert [a.dtype for a in arrays] == [np.float32] * len(trajectory.sequences)
            sampled = np.concatenate([a[s.sampled] for a, s in zip(arrays, trajectory.sequences, strict=True)])
            assert len(set(sampled.tolist())) == 1
            values.append(float(sampled[0]))
    return values


def row_of(mask: Several[int], trajectory: str = "a", group: str = "g0") -> Row:
    return Row(sequence(mask), np.zeros(len(mask), dtype=np.float32), trajectory, group)


@pytest.fixture(scope="session")
def inputs() -> Callable[..., LossInputs[torch.Tensor]]:
    """Builds LossInputs in float64; what is not given is neutral."""

    def build(
        logprobs: torch.Tensor | Several[float],
        old: torch.Tensor | Several[float] | None = None,
        *,
        advantages: Several[float] | None = None,
        reference: Several[float] | None = None,
        correction: Several[float] | None = None,
        row: Several[int] | None = None,
    ) -> LossInputs[torch.Tensor]:
        def tensor(values: torch.Tensor | Several[float]) -> torch.Tensor:
            return values if isinstance(values, torch.Tensor) else torch.tensor(values, dtype=torch.float64)

        current = tensor(logprobs)
        rows = torch.tensor(row if row is not None else [0] * len(current), dtype=torch.int64)
        return LossInputs(
            logprobs=current,
            old_logprobs=current.detach() if old is None else tensor(old),
            rollout_logprobs=None,
            reference_logprobs=None if reference is None else tensor(reference),
            advantages=torch.ones_like(current) if advantages is None else tensor(advantages),
            correction=torch.ones_like(current) if correction is None else tensor(correction),
            row=rows,
            trajectory=rows,
        )

    return build


@pytest.fixture(scope="session")
def make() -> object:
    """The builders above, for tests (the tests' folder is no package to import from)."""

    class Make:
        sequence = staticmethod(sequence)
        group = staticmethod(group_of)
        values = staticmethod(values_of)
        row = staticmethod(row_of)

    return Make
