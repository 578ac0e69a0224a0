"""The weights of a step: worked by hand, and what must hold for any rows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from miles_plugin_algorithms.reduction import ReduceOptions
from pydantic import ValidationError as OptionsError

# trajectory a: two sequences, 3 + 1 sampled tokens; b: 2; c: none. N = 2 (c is not counted), M = 6.
MASKS = [([0, 1, 1, 1], "a"), ([0, 0, 1], "a"), ([1, 0, 1], "b"), ([0, 0], "c")]
WORKED = [
    ({"reduce": "sequence-mean"}, 1 / 8, 1 / 4),  # 1 / (2 * 4), 1 / (2 * 2)
    ({"reduce": "token-mean"}, 1 / 6, 1 / 6),
    ({"reduce": "constant-length", "length": 10}, 1 / 20, 1 / 20),  # 1 / (2 * 10)
]


@pytest.mark.parametrize(("options", "a", "b"), WORKED, ids=[w[0]["reduce"] for w in WORKED])
def test_worked_weights(options, a, b, make):
    rows = [make.row(mask, trajectory) for mask, trajectory in MASKS]
    weights = ReduceOptions(**options).weights(rows)
    assert all(w.dtype == np.float32 for w in weights)
    expected = [[0, a, a, a], [0, 0, a], [b, 0, b], [0, 0]]
    for got, want in zip(weights, expected, strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("options", [w[0] for w in WORKED])
def test_a_step_without_sampled_tokens_weighs_nothing(options, make):
    weights = ReduceOptions(**options).weights([make.row([0, 0]), make.row([0], "b")])
    assert [w.tolist() for w in weights] == [[0, 0], [0]]
    assert ReduceOptions(**options).weights([]) == []


STEPS = st.lists(
    st.tuples(st.lists(st.integers(0, 1), min_size=1, max_size=8), st.sampled_from("abcde")), min_size=1, max_size=12
)


@given(step=STEPS, reduce=st.sampled_from(["sequence-mean", "token-mean"]))
def test_means_have_weights_that_sum_to_one(step, reduce, make):
    weights = ReduceOptions(reduce=reduce).weights([make.row(mask, t) for mask, t in step])
    anything = any(any(mask) for mask, _ in step)
    np.testing.assert_allclose(sum(float(w.sum()) for w in weights), 1.0 if anything else 0.0, rtol=1e-5)


@given(step=STEPS)
def test_sequence_mean_gives_every_trajectory_the_same_share(step, make):
    rows = [make.row(mask, t) for mask, t in step]
    shares: dict[str, float] = {}
    for row, weight in zip(rows, ReduceOptions(reduce="sequence-mean").weights(rows), strict=True):
        if row.sequence.sampled_count:
            shares[row.trajectory] = shares.get(row.trajectory, 0.0) + float(weight.sum())
    np.testing.assert_allclose(list(shares.values()), [1 / max(len(shares), 1)] * len(shares), rtol=1e-5)


@given(step=STEPS, data=st.data(), options=st.sampled_from([w[0] for w in WORKED]))
def test_the_order_of_rows_does_not_matter(step, data, options, make):
    rows = [make.row(mask, t) for mask, t in step]
    order = data.draw(st.permutations(range(len(rows))))
    plain = ReduceOptions(**options).weights(rows)
    for place, weight in zip(order, ReduceOptions(**options).weights([rows[i] for i in order]), strict=True):
        assert weight.tolist() == plain[place].tolist()


@given(step=STEPS)
def test_tokens_that_were_not_sampled_weigh_nothing(step, make):
    rows = [make.row(mask, t) for mask, t in step]
    for options, _, _ in WORKED:
        for row, weight in zip(rows, ReduceOptions(**options).weights(rows), strict=True):
            assert not weight[~row.sequence.sampled].any()
            assert (weight[row.sequence.sampled] > 0).all()


@pytest.mark.parametrize(
    "options",
    [{"reduce": "constant-length"}, {"length": 8}, {"reduce": "constant-length", "length": 0}, {"reduce": "mean"}],
)
def test_options_that_contradict_are_refused(options):
    with pytest.raises(OptionsError):
        ReduceOptions(**options)
