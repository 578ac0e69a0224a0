"""The policy loss against values worked by hand, numerical gradients, and what must hold for any tokens."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from miles_plugin_algorithms.policy import PolicyLoss
from miles_plugin_algorithms.policy_options import PolicyOptions
from pydantic import ValidationError as OptionsError
from torch.autograd import gradcheck

LOG = math.log


def ratios(*values: float) -> list[float]:
    """Log-probs of tokens whose old probability is 1/2 and whose ratio is the value."""
    return [LOG(0.5 * value) for value in values]


def old(count: int) -> list[float]:
    return [LOG(0.5)] * count


def loss(context, **options) -> PolicyLoss:
    return PolicyLoss(PolicyOptions(**options), context)


def test_asymmetric_clip_worked(inputs, context):
    # clip [0.2, 0.28]: to [0.8, 1.28]. loss = -min(r A, clip(r) A)
    #   r 1.4 A +1: -min( 1.4,  1.28) = -1.28   clipped high
    #   r 1.4 A -1: -min(-1.4, -1.28) =  1.4
    #   r 0.6 A +1: -min( 0.6,  0.8 ) = -0.6
    #   r 0.6 A -1: -min(-0.6, -0.8 ) =  0.8    clipped low
    #   r 1.0 A +2: -2
    terms = loss(context, clip=[0.2, 0.28]).per_token(
        inputs(ratios(1.4, 1.4, 0.6, 0.6, 1.0), old(5), advantages=[1, -1, 1, -1, 2])
    )
    np.testing.assert_allclose(terms.values, [-1.28, 1.4, -0.6, 0.8, -2.0], rtol=1e-12)
    assert terms.means["clip_fraction_high"].tolist() == [1, 0, 0, 0, 0]
    assert terms.means["clip_fraction_low"].tolist() == [0, 0, 0, 1, 0]
    assert terms.means["clip_fraction"].tolist() == [1, 0, 0, 1, 0]
    np.testing.assert_allclose(terms.means["ratio"], [1.4, 1.4, 0.6, 0.6, 1.0], rtol=1e-12)
    np.testing.assert_allclose(terms.maxima["ratio_max"].max(), 1.4, rtol=1e-12)


def test_without_a_clip(inputs, context):
    terms = loss(context, clip=None).per_token(inputs(ratios(1.4, 0.6), old(2), advantages=[1, -1]))
    np.testing.assert_allclose(terms.values, [-1.4, 0.6], rtol=1e-12)
    assert "clip_fraction" not in terms.means


def test_dual_clip_worked(inputs, context):
    # c = 3, only with A < 0: r 4 A -1: min(-4, -1.2) = -4, at least -3: loss 3; r 2 A -1: loss 2
    # r 4 A +1: clipped as ever, loss -1.2
    terms = loss(context, dual_clip=3.0).per_token(
        inputs([LOG(0.4), LOG(0.2), LOG(0.4)], [LOG(0.1)] * 3, advantages=[-1, -1, 1])
    )
    np.testing.assert_allclose(terms.values, [3.0, 2.0, -1.2], rtol=1e-12)
    assert terms.means["clip_fraction_dual"].tolist() == [1, 0, 0]


def test_the_correction_multiplies_the_clipped_term_and_not_the_kl(inputs, context):
    # p 1/2, reference 1/4: d = ln 2, k3 = 1/2 - 1 + ln 2 = 0.1931472. w = 0.5: -0.5 * 1 + 0.1 * 0.1931472
    options = {"kl": {"estimator": "k3", "weight": 0.1}}
    terms = loss(context, **options).per_token(inputs([LOG(0.5)], reference=[LOG(0.25)], correction=[0.5]))
    np.testing.assert_allclose(terms.values, [-0.5 + 0.1 * 0.19314718056], rtol=1e-10)
    np.testing.assert_allclose(terms.means["reference_kl"], [0.19314718056], rtol=1e-10)


@pytest.mark.parametrize(
    ("estimator", "above", "below"),
    [
        ("k1", LOG(2), -LOG(2)),
        ("k2", LOG(2) ** 2 / 2, LOG(2) ** 2 / 2),
        ("k3", 0.5 - 1 + LOG(2), 2 - 1 - LOG(2)),
    ],
)
def test_kl_is_policy_minus_reference(estimator, above, below, inputs, context):
    # p 1/2: reference 1/4 -> d = +ln 2; reference 1 -> d = -ln 2. With A = 0 the loss is the KL alone
    policy = loss(context, kl={"estimator": estimator, "weight": 1.0})
    terms = policy.per_token(inputs([LOG(0.5)] * 2, reference=[LOG(0.25), 0.0], advantages=[0, 0]))
    np.testing.assert_allclose(terms.values, [above, below], rtol=1e-12)


def test_a_reference_is_needed_only_when_the_kl_has_weight(context):
    assert not loss(context).needs_reference
    assert not loss(context, kl={"estimator": "k1", "weight": 0.0}).needs_reference
    assert loss(context, kl={"weight": 1e-3}).needs_reference
    assert loss(context).needs_rollout_logprobs


def test_kl_estimators_agree_with_the_exact_kl_in_expectation():
    from miles_plugin_algorithms.kl import reference_kl

    p = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64)
    q = torch.tensor([0.4, 0.4, 0.2], dtype=torch.float64)
    exact = float((p * (p / q).log()).sum())
    for estimator in ("k1", "k3"):
        assert float((p * reference_kl(estimator, p.log(), q.log())).sum()) == pytest.approx(exact, rel=1e-12)
    assert float((p * reference_kl("k2", p.log(), q.log())).sum()) == pytest.approx(exact, rel=0.05)


def test_kl_gradients_are_what_the_card_says():
    """Enumerating every token: k1's expected gradient is 0, k2's that of the KL, k3's that of its other direction."""
    from miles_plugin_algorithms.kl import reference_kl

    logits = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64, requires_grad=True)
    reference = torch.tensor([0.1, 0.2, 0.0], dtype=torch.float64).log_softmax(0)

    def gradient_of(estimator):
        p = logits.log_softmax(0)
        return torch.autograd.grad((p.detach().exp() * reference_kl(estimator, p, reference)).sum(), logits)[0]

    p = logits.log_softmax(0)
    exact = torch.autograd.grad((p.exp() * (p - reference)).sum(), logits)[0]
    np.testing.assert_allclose(gradient_of("k1"), [0, 0, 0], atol=1e-15)
    np.testing.assert_allclose(gradient_of("k2"), exact, rtol=1e-12)
    other = torch.autograd.grad((reference.exp() * (reference - logits.log_softmax(0))).sum(), logits)[0]
    np.testing.assert_allclose(gradient_of("k3"), other, rtol=1e-12)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_the_unbiased_kl_has_the_exact_value_and_gradient_off_policy(estimator, inputs, context):
    """Enumerating every token of a different old policy: sum of p_old * r * k is KL(p || reference), gradient too."""
    logits = torch.tensor([0.3, -0.2, 0.9], dtype=torch.float64, requires_grad=True)
    before = torch.tensor([-0.5, 0.4, 0.2], dtype=torch.float64).log_softmax(0)
    reference = torch.tensor([0.1, 0.2, 0.0], dtype=torch.float64).log_softmax(0)
    p = logits.log_softmax(0)
    policy = loss(context, kl={"estimator": estimator, "weight": 1.0, "unbiased": True})
    terms = policy.per_token(inputs(p, before, advantages=[0, 0, 0], reference=reference, row=[0, 1, 2]))
    mine, exact = (before.exp() * terms.values).sum(), (p.exp() * (p - reference)).sum()
    assert mine.item() == pytest.approx(exact.item(), rel=1e-12)
    np.testing.assert_allclose(
        torch.autograd.grad(mine, logits, retain_graph=True)[0], torch.autograd.grad(exact, logits)[0], rtol=1e-12
    )


def test_k3_keeps_its_digits_near_zero():
    """d = 2^-12: k3 is d^2/2 - d^3/6 = 2.98e-8; float32's exp(-d) - 1 + d is a multiple of 6e-8."""
    from miles_plugin_algorithms.kl import reference_kl

    d = 2.0**-12
    got = reference_kl("k3", torch.tensor([-1.0]), torch.tensor([-1.0 - d]))
    assert float(got) == pytest.approx(d**2 / 2 - d**3 / 6, rel=0.005)


def test_sequence_level_worked(inputs, context):
    # row 0: ratios 1.4 and 0.6: s = sqrt(0.84) = 0.9165151; row 1: 1.5 and 1.5: s = 1.5, clipped to 1.2
    terms = loss(context, level="sequence").per_token(inputs(ratios(1.4, 0.6, 1.5, 1.5), old(4), row=[0, 0, 1, 1]))
    np.testing.assert_allclose(terms.values, [-0.9165151, -0.9165151, -1.2, -1.2], rtol=1e-7)
    np.testing.assert_allclose(terms.means["ratio"], [0.9165151, 0.9165151, 1.5, 1.5], rtol=1e-7)
    assert terms.means["clip_fraction"].tolist() == [0, 0, 1, 1]
    # the KL to the old policy stays one of tokens: k1 = -ln 1.4, k3 = 0.4 - ln 1.4
    np.testing.assert_allclose(terms.means["old_kl_k1"][0], -LOG(1.4), rtol=1e-12)
    np.testing.assert_allclose(terms.means["old_kl_k3"][0], 0.4 - LOG(1.4), rtol=1e-12)


def test_sequence_level_gradient_is_that_of_the_published_objective(inputs, context):
    """GSPO: the gradient of -1/N sum_i s_i A_i, computed here from that formula."""
    generator = torch.Generator().manual_seed(3)
    before = -torch.rand(7, dtype=torch.float64, generator=generator)
    now = (before + 0.05 * torch.randn(7, dtype=torch.float64, generator=generator)).requires_grad_()
    row, advantage = [0, 0, 0, 1, 1, 2, 2], [0.5, 0.5, 0.5, -1.0, -1.0, 2.0, 2.0]
    terms = loss(context, level="sequence").per_token(inputs(now, before, advantages=advantage, row=row))
    weights = torch.tensor([1 / 9] * 3 + [1 / 6] * 4, dtype=torch.float64)  # 1 / (3 rows * their lengths)
    mine = torch.autograd.grad((weights * terms.values).sum(), now)[0]
    s = torch.stack([(now - before)[rows].mean().exp() for rows in ([0, 1, 2], [3, 4], [5, 6])])
    objective = -(s * torch.tensor([0.5, -1.0, 2.0], dtype=torch.float64)).mean()
    np.testing.assert_allclose(mine, torch.autograd.grad(objective, now)[0], rtol=1e-12)


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])
def test_gradients_equal_finite_differences(level, estimator, inputs, context):
    policy = loss(context, level=level, clip=[0.2, 0.28], dual_clip=3.0, kl={"estimator": estimator, "weight": 0.05})
    generator = torch.Generator().manual_seed(5)
    before = -2 * torch.rand(8, dtype=torch.float64, generator=generator)
    now = (before + 0.4 * torch.randn(8, dtype=torch.float64, generator=generator)).requires_grad_()
    advantages = [1.0, -1.0, 0.5, -0.25, 2.0, -2.0, 0.0, 1.5]
    reference, row = (before - 0.3).tolist(), [0, 0, 0, 1, 1, 2, 2, 2]

    def values(logprobs: torch.Tensor) -> torch.Tensor:
        return policy.per_token(
            inputs(logprobs, before, advantages=advantages, reference=reference, correction=[0.5] * 8, row=row)
        ).values

    assert gradcheck(values, (now,))


def test_on_policy_the_gradient_is_minus_the_advantage(inputs, context):
    now = torch.tensor(ratios(0.3, 1.0, 1.9), dtype=torch.float64, requires_grad=True)
    terms = loss(context).per_token(inputs(now, advantages=[1.5, -2.0, 0.0], correction=[1.0, 0.5, 1.0]))
    gradient = torch.autograd.grad(terms.values.sum(), now)[0]
    np.testing.assert_allclose(gradient, [-1.5, 1.0, 0.0], atol=1e-15)


def test_a_clipped_token_has_no_gradient(inputs, context):
    now = torch.tensor(ratios(1.4, 0.6), dtype=torch.float64, requires_grad=True)
    terms = loss(context).per_token(inputs(now, old(2), advantages=[1.0, -1.0]))
    assert torch.autograd.grad(terms.values.sum(), now)[0].tolist() == [0.0, 0.0]


def test_metrics_carry_no_gradient(inputs, context):
    now = torch.tensor(ratios(1.1, 0.9), dtype=torch.float64, requires_grad=True)
    terms = loss(context, dual_clip=2.0, kl={"weight": 1.0}).per_token(inputs(now, old(2), reference=old(2)))
    assert terms.values.requires_grad
    assert not any(metric.requires_grad for metric in [*terms.means.values(), *terms.maxima.values()])


TOKENS = st.lists(
    st.tuples(st.floats(-3, 3), st.floats(-2, 2), st.floats(0, 2), st.integers(0, 3)), min_size=1, max_size=12
)


@given(
    tokens=TOKENS,
    clip=st.sampled_from([None, (0.2, 0.2), (0.2, 0.28), (1.0, 5.0)]),
    dual=st.sampled_from([None, 1.5, 3.0]),
)
def test_token_level_equals_a_scalar_reference(tokens, clip, dual, inputs, context):
    log_ratio, advantages, correction, _ = zip(*tokens, strict=True)
    policy = loss(context, clip=clip, dual_clip=dual)
    got = policy.per_token(inputs(list(log_ratio), [0.0] * len(tokens), advantages=advantages, correction=correction))
    for value, d, a, w in zip(got.values.tolist(), log_ratio, advantages, correction, strict=True):
        r = math.exp(d)
        objective = r * a
        if clip is not None:
            objective = min(objective, min(max(r, 1 - clip[0]), 1 + clip[1]) * a)
        if dual is not None and a < 0:
            objective = max(objective, dual * a)
        assert value == pytest.approx(-w * objective, rel=1e-12, abs=1e-15)


@given(tokens=TOKENS, width=st.floats(0.05, 0.95))
def test_a_symmetric_clip_bounds_both_signs_alike(tokens, width, inputs, context):
    """With [w, w]: mirroring ratio about 1 and the advantage's sign swaps the two clipped fractions."""
    ratio = [1 + 0.9 * math.tanh(d) for d, *_ in tokens]  # in (0.1, 1.9), so that 2 - r is a ratio too
    advantages = [a for _, a, *_ in tokens]
    policy = loss(context, clip=[width, width])
    straight = policy.per_token(inputs([LOG(r) for r in ratio], [0.0] * len(tokens), advantages=advantages)).means
    mirrored = policy.per_token(
        inputs([LOG(2 - r) for r in ratio], [0.0] * len(tokens), advantages=[-a for a in advantages])
    ).means
    away = [abs(abs(r - 1) - width) > 1e-9 for r in ratio]
    for one, other in [("clip_fraction_low", "clip_fraction_high"), ("clip_fraction_high", "clip_fraction_low")]:
        for a, b, clear in zip(straight[one].tolist(), mirrored[other].tolist(), away, strict=True):
            assert a == b or not clear


@given(
    tokens=TOKENS,
    level=st.sampled_from(["token", "sequence"]),
    reduce=st.sampled_from(
        [{"reduce": "sequence-mean"}, {"reduce": "token-mean"}, {"reduce": "constant-length", "length": 7}]
    ),
    cut=st.integers(0, 4),
)
def test_micro_batches_add_up_to_the_whole_step(tokens, level, reduce, cut, inputs, context, make):
    """Loss and gradient of a step do not depend on how whole rows are put into micro-batches."""
    tokens = sorted(tokens, key=lambda token: token[3])
    lengths = [sum(1 for t in tokens if t[3] == row) for row in range(4)]
    policy = loss(context, level=level, kl={"weight": 0.1}, **reduce)
    weights = policy.weights([make.row([1] * n or [0], "ab"[i % 2]) for i, n in enumerate(lengths)])
    flat = torch.tensor(np.concatenate([w[:n] for w, n in zip(weights, lengths, strict=True)]), dtype=torch.float64)
    now = torch.tensor([-1 + 0.1 * t[0] for t in tokens], dtype=torch.float64, requires_grad=True)

    def part(rows: range) -> torch.Tensor:
        places = [i for i, t in enumerate(tokens) if t[3] in rows]
        chosen = [tokens[i] for i in places]
        terms = policy.per_token(
            inputs(
                now[places],
                [-1.0] * len(places),
                advantages=[t[1] for t in chosen],
                correction=[t[2] for t in chosen],
                reference=[-1.5] * len(places),
                row=[t[3] - rows.start for t in chosen],
            )
        )
        return (flat[places] * terms.values).sum()

    whole, parts = part(range(4)), part(range(cut)) + part(range(cut, 4))
    assert parts.item() == pytest.approx(whole.item(), rel=1e-12, abs=1e-14)
    np.testing.assert_allclose(
        torch.autograd.grad(parts, now)[0], torch.autograd.grad(whole, now)[0], rtol=1e-10, atol=1e-14
    )


@pytest.mark.parametrize("level", ["token", "sequence"])
@pytest.mark.parametrize("advantage", [1.0, -1.0, 0.0])
@pytest.mark.parametrize("current", [float("nan"), float("inf"), float("-inf"), 100.0])
def test_what_is_not_finite_is_never_hidden(level, advantage, current, inputs, context):
    """NaN, infinite log-probs, and a float32 ratio that overflows, even where clipping or A = 0 would hide them."""
    given_inputs = inputs(
        torch.tensor([current, -1.0]),
        torch.tensor([-1.0, -1.0]),
        advantages=torch.tensor([advantage] * 2),
        correction=torch.ones(2),
        row=[0, 1],
    )
    values = loss(context, level=level).per_token(given_inputs).values
    assert not math.isfinite(float(values[0]))
    assert float(values[1]) == -advantage


def test_one_broken_token_is_not_hidden_by_the_mean_of_its_sequence(inputs, context):
    given_inputs = inputs(
        torch.tensor([-1.0, -201.0]), torch.tensor([-101.0, -101.0]), advantages=torch.ones(2), correction=torch.ones(2)
    )
    values = loss(context, level="sequence").per_token(given_inputs).values  # log-ratios +100 and -100: the mean is 0
    assert not math.isfinite(float(values[0]))


def test_a_reference_that_overflows_is_infinite(inputs, context):
    terms = loss(context, kl={"weight": 0.1}).per_token(
        inputs(torch.tensor([-200.0]), advantages=torch.ones(1), correction=torch.ones(1), reference=torch.zeros(1))
    )
    assert float(terms.values) == math.inf


@pytest.mark.parametrize("difference", [-87.0, 87.0])
@pytest.mark.parametrize("advantage", [1.0, -1.0, 0.0])
def test_extreme_but_finite_ratios_have_finite_gradients(difference, advantage, inputs, context):
    now = torch.tensor([-90.0 + difference], requires_grad=True)
    terms = loss(context).per_token(
        inputs(now, torch.tensor([-90.0]), advantages=torch.tensor([advantage]), correction=torch.ones(1))
    )
    assert torch.isfinite(torch.autograd.grad(terms.values.sum(), now)[0]).all()


def test_a_micro_batch_without_tokens(inputs, context):
    for level in ("token", "sequence"):
        terms = loss(context, level=level, kl={"weight": 1.0}).per_token(inputs([], [], reference=[], row=[]))
        assert terms.values.shape == (0,)


@pytest.mark.parametrize(
    "options",
    [
        {"clip": [0.2]},
        {"clip": [0, 0.2]},
        {"clip": [1.5, 0.2]},
        {"clip": [0.2, -1]},
        {"clip": 0.2},
        {"dual_clip": 1.0},
        {"kl": {"estimator": "k4"}},
        {"kl": {"weight": -1}},
        {"level": "trajectory"},
    ],
)
def test_options_that_mean_nothing_are_refused(options):
    with pytest.raises(OptionsError):
        PolicyOptions(**options)
