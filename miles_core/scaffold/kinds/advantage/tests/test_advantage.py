"""Only the order counts, and the advantages of a group add up to nothing."""

import numpy as np
import pytest
from miles_core import BuildContext
from miles_core.testing import make_group

from miles_plugin_xyz.advantage import XyzAdvantage
from miles_plugin_xyz.options import XyzOptions


def advantages(rewards: list[float | None], scale: float = 1.0) -> list[float]:
    """One number for each trajectory; all of its tokens must have it."""
    group = make_group(["a"] * len(rewards), rewards)
    options = XyzOptions(scale=scale)
    advantage = XyzAdvantage(options, BuildContext(seed=1, name="advantage"))
    found = advantage.compute([group])
    numbers = []
    for trajectory in group.trajectories:
        (row,) = found[trajectory.id]
        assert row.dtype == np.float32 and row.shape == trajectory.sequences[0].tokens.shape
        assert len(set(row.tolist())) == 1
        numbers.append(float(row[0]))
    return numbers


@pytest.mark.parametrize(
    ("rewards", "expected"),
    [
        ([0.0, 0.5, 1.0], [-1.0, 0.0, 1.0]),
        ([0.0, 0.5, 1000.0], [-1.0, 0.0, 1.0]),
        ([1.0, 1.0, 0.0], [0.5, 0.5, -1.0]),
        ([2.0, 2.0], [0.0, 0.0]),
        ([3.0], [0.0]),
    ],
)
def test_only_the_order_counts(rewards: list[float | None], expected: list[float]) -> None:
    assert advantages(rewards) == expected
    assert sum(advantages(rewards)) == 0


def test_the_scale_is_that_of_the_best() -> None:
    assert advantages([0.0, 1.0], scale=0.25) == [-0.25, 0.25]
