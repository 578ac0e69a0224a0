"""Importance corrections: worked by hand, a scalar reference, and what is not finite."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from miles_plugin_algorithms.correction import ClipOrPop, Mask, TruncatedImportance
from miles_plugin_algorithms.correction_options import MaskOptions, PopOptions, TisOptions
from pydantic import ValidationError as OptionsError

KINDS = {"tis": (TruncatedImportance, TisOptions), "pop": (ClipOrPop, PopOptions), "mask": (Mask, MaskOptions)}


def correct(kind, context, ratios, rows=None, **options):
    factory, model = KINDS[kind]
    log_ratio = torch.tensor([math.log(r) for r in ratios], dtype=torch.float64)
    return factory(model(**options), context).correct(log_ratio, torch.tensor(rows or [0] * len(ratios)))


@pytest.mark.parametrize(
    ("kind", "weights", "clipped"),
    [
        ("tis", [0.25, 1, 2, 2], [0, 0, 1, 1]),  # clamped to [0, 2]
        ("pop", [0, 1, 4, 0], [1, 0, 0, 1]),  # kept inside [0.5, 5]
    ],
)
def test_tokens_worked(kind, weights, clipped, context):
    # ratios 1/4, 1, 4, 8: mean 13.25/4 = 3.3125, max 8, mean |r - 1| = (3/4 + 0 + 3 + 7)/4 = 2.6875
    terms = correct(kind, context, [0.25, 1, 4, 8])
    np.testing.assert_allclose(terms.values, weights, rtol=1e-12)
    assert terms.means["clipped"].tolist() == clipped
    assert float(terms.means["ratio_mean"].mean()) == pytest.approx(3.3125)
    assert float(terms.means["mismatch"].mean()) == pytest.approx(2.6875)
    assert float(terms.maxima["ratio_max"].max()) == pytest.approx(8)


@pytest.mark.parametrize(
    ("kind", "bounds", "weights"),
    [
        ("tis", [0, 2], [0.6, 0.6, 2, 2]),
        ("pop", [0.5, 5], [0.6, 0.6, 0, 0]),
        ("mask", [0.5, 2], [1, 1, 0, 0]),
        ("mask", [0.9, 10], [0, 0, 1, 1]),
    ],
)
def test_sequences_worked(kind, bounds, weights, context):
    # row 0: ratios 0.36 and 1, geometric mean sqrt(0.36) = 0.6; row 1: 4 and 9, sqrt(36) = 6
    terms = correct(kind, context, [0.36, 1, 4, 9], [0, 0, 1, 1], bounds=bounds, level="sequence")
    np.testing.assert_allclose(terms.values, weights, rtol=1e-12)
    np.testing.assert_allclose(terms.means["sequence_ratio_mean"], [0.6, 0.6, 6, 6], rtol=1e-12)
    np.testing.assert_allclose(terms.means["ratio_mean"], [0.36, 1, 4, 9], rtol=1e-12)  # always that of tokens


@pytest.mark.parametrize("kind", KINDS)
def test_defaults(kind):
    bounds, level = {"tis": ((0, 2), "token"), "pop": ((0.5, 5), "token"), "mask": ((0.5, 2), "sequence")}[kind]
    options = KINDS[kind][1]()
    assert (options.bounds, options.level) == (bounds, level)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_no_mismatch_no_correction(kind, level, context):
    terms = correct(kind, context, [1.0, 1.0, 1.0], [0, 0, 1], level=level)
    assert terms.values.tolist() == [1, 1, 1]
    assert terms.means["mismatch"].tolist() == [0, 0, 0]
    assert terms.means["clipped"].tolist() == [0, 0, 0]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", ["token", "sequence"])
def test_weights_and_metrics_carry_no_gradient(kind, level, context):
    factory, model = KINDS[kind]
    log_ratio = torch.zeros(3, requires_grad=True)
    terms = factory(model(level=level), context).correct(log_ratio, torch.zeros(3, dtype=torch.int64))
    assert not any(t.requires_grad for t in [terms.values, *terms.means.values(), *terms.maxima.values()])


@given(
    tokens=st.lists(st.tuples(st.floats(-4, 4), st.integers(0, 3)), min_size=1, max_size=16),
    kind=st.sampled_from(sorted(KINDS)),
    level=st.sampled_from(["token", "sequence"]),
    bounds=st.tuples(st.floats(0, 0.9), st.floats(1.1, 6)),
)
def test_equals_a_scalar_reference(tokens, kind, level, bounds, context):
    low, high = bounds
    terms = correct(kind, context, [math.exp(d) for d, _ in tokens], [r for _, r in tokens], bounds=bounds, level=level)
    for got, clipped, (d, row) in zip(terms.values.tolist(), terms.means["clipped"].tolist(), tokens, strict=True):
        own = [e for e, r in tokens if r == row]
        ratio = math.exp(sum(own) / len(own) if level == "sequence" else d)
        if min(abs(ratio - low), abs(ratio - high)) < 1e-9:
            continue  # on the bound itself rounding decides
        inside = low <= ratio <= high
        weight = {"tis": min(max(ratio, low), high), "pop": ratio * inside, "mask": float(inside)}[kind]
        assert got == pytest.approx(weight, rel=1e-9)
        assert clipped == float(not inside)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf"), 100.0])
def test_what_is_not_finite_is_never_clamped(kind, level, value, context):
    """In float32 exp(100) overflows: clamping would turn a broken run into an ordinary weight of 2."""
    factory, model = KINDS[kind]
    log_ratio = torch.tensor([value, 0.0])
    terms = factory(model(level=level), context).correct(log_ratio, torch.tensor([0, 1]))
    assert not math.isfinite(float(terms.values[0]))
    assert float(terms.values[1]) == 1.0


def test_one_broken_token_is_not_hidden_by_the_mean_of_its_sequence(context):
    log_ratio = torch.tensor([100.0, -100.0])  # geometric mean 1, but the first ratio overflows
    terms = Mask(MaskOptions(), context).correct(log_ratio, torch.tensor([0, 0]))
    assert not math.isfinite(float(terms.values[0]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_micro_batch_without_tokens(kind, context):
    factory, model = KINDS[kind]
    terms = factory(model(level="sequence"), context).correct(torch.zeros(0), torch.zeros(0, dtype=torch.int64))
    assert terms.values.shape == (0,)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("bounds", [[2, 0], [1, 1], [-1, 2], [0, float("inf")], [1.5, 2], [0, 0.5], [0], 2])
def test_bounds_that_mean_nothing_are_refused(kind, bounds):
    with pytest.raises(OptionsError):
        KINDS[kind][1](bounds=bounds)
