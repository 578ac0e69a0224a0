"""The supervised loss: worked by hand, and against torch's cross-entropy."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from miles_plugin_algorithms.supervised import SupervisedLoss
from miles_plugin_algorithms.supervised_options import SupervisedOptions


def test_worked(inputs, context, make):
    # probabilities 1/2, 1/4 (trajectory a) and 1/8 (b): losses ln 2, 2 ln 2, 3 ln 2
    # sequence-mean: (1/2)(3/2 ln 2) + (1/2)(3 ln 2) = 9/4 ln 2; token-mean: 6/3 ln 2; constant 4: 6 ln 2 / (2 * 4)
    logprobs = [math.log(p) for p in (1 / 2, 1 / 4, 1 / 8)]
    rows = [make.row([0, 1, 1], "a"), make.row([0, 1], "b")]
    expected = [("sequence-mean", None, 9 / 4), ("token-mean", None, 2.0), ("constant-length", 4, 6 / 8)]
    for reduce, length, factor in expected:
        loss = SupervisedLoss(SupervisedOptions(reduce=reduce, length=length), context)
        terms = loss.per_token(inputs(logprobs, row=[0, 0, 1]))
        weights = np.concatenate([w[r.sequence.sampled] for w, r in zip(loss.weights(rows), rows, strict=True)])
        assert float((terms.values.numpy() * weights).sum()) == pytest.approx(factor * math.log(2), rel=1e-6)
        np.testing.assert_allclose(terms.means["nll"], [math.log(2), 2 * math.log(2), 3 * math.log(2)], rtol=1e-12)


def test_token_mean_is_cross_entropy(inputs, context, make):
    generator = torch.Generator().manual_seed(1)
    logits = torch.randn(6, 11, dtype=torch.float64, generator=generator, requires_grad=True)
    target = torch.randint(0, 11, (6,), generator=generator)
    loss = SupervisedLoss(SupervisedOptions(reduce="token-mean"), context)
    logprobs = logits.log_softmax(-1).gather(1, target[:, None])[:, 0]
    weights = np.concatenate(loss.weights([make.row([1] * 4, "a"), make.row([1] * 2, "b")]))
    mine = (loss.per_token(inputs(logprobs)).values * torch.tensor(weights)).sum()
    theirs = torch.nn.functional.cross_entropy(logits, target)
    assert mine.item() == pytest.approx(theirs.item(), rel=1e-6)
    np.testing.assert_allclose(
        torch.autograd.grad(mine, logits, retain_graph=True)[0], torch.autograd.grad(theirs, logits)[0], rtol=1e-6
    )


def test_it_reads_neither_advantages_nor_corrections_nor_rollouts(inputs, context):
    loss = SupervisedLoss(SupervisedOptions(), context)
    assert not loss.needs_rollout_logprobs
    assert not loss.needs_reference
    odd = inputs([-1.0, -2.0], [-9.0, -9.0], advantages=[5, -5], correction=[0, 7])
    assert loss.per_token(odd).values.tolist() == [1.0, 2.0]


@pytest.mark.parametrize("value", [float("nan"), float("-inf")])
def test_what_is_not_finite_is_passed_on(value, inputs, context):
    assert not math.isfinite(float(SupervisedLoss(SupervisedOptions(), context).per_token(inputs([value])).values))
