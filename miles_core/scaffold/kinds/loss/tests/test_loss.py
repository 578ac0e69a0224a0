"""The loss of single tokens, and how tokens are weighed against each other."""

from typing import Any

import numpy as np
import pytest
from miles_core import BuildContext, LossInputs
from miles_core.testing import make_batch, make_group
from numpy.typing import NDArray

from miles_plugin_xyz.loss import XyzLoss
from miles_plugin_xyz.options import XyzOptions


def made() -> XyzLoss:
    options = XyzOptions(clip=0.2)
    return XyzLoss(options, BuildContext(seed=1, name="loss"))


def inputs(ratio: float, advantage: float, correction: float = 1.0) -> LossInputs[NDArray[Any]]:
    """One token whose probability has changed by `ratio`."""
    one = np.ones(1)
    index = np.zeros(1, np.int64)
    return LossInputs(np.log(ratio * one), 0 * one, None, None, advantage * one, correction * one, index, index)


@pytest.mark.parametrize(
    ("ratio", "advantage", "expected"),
    [
        (1.0, 2.0, -2.0),
        (1.1, 2.0, -2.2),
        (1.5, 2.0, -2.4),  # better already: no further pull
        (0.5, 2.0, -1.0),  # moved the wrong way: pulled back
        (0.5, -2.0, 1.6),
        (1.5, -2.0, 3.0),
    ],
)
def test_the_gain_is_clipped_only_where_it_flatters(ratio: float, advantage: float, expected: float) -> None:
    terms = made().per_token(inputs(ratio, advantage))
    assert terms.values.tolist() == pytest.approx([expected])
    assert terms.means["clipped"].tolist() == [abs(ratio - 1) > 0.2]


def test_the_correction_weighs_a_token() -> None:
    assert made().per_token(inputs(1.0, 2.0, correction=0.25)).values.tolist() == pytest.approx([-0.5])


def test_all_sampled_tokens_of_a_step_weigh_the_same() -> None:
    rows = make_batch([make_group(["1", "12345"])]).rows
    weights = made().weights(rows)
    assert sum(float(weight.sum()) for weight in weights) == pytest.approx(1.0)
    used = {float(w) for row, weight in zip(rows, weights, strict=True) for w in weight[row.sequence.sampled]}
    assert len(used) == 1
    assert all(not weight[~row.sequence.sampled].any() for row, weight in zip(rows, weights, strict=True))
