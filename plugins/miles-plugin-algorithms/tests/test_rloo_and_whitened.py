"""RLOO and REINFORCE++-baseline against values worked by hand and float64 references."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from miles_plugin_algorithms.reinforce_plus_plus_baseline import (
    ReinforcePlusPlusBaseline,
    ReinforcePlusPlusBaselineOptions,
)
from miles_plugin_algorithms.rloo import Rloo, RlooOptions

from miles_core import ValidationError

REWARDS = st.lists(st.integers(-64, 64).map(lambda k: k / 16), min_size=2, max_size=10)


def test_rloo_of_one_success_in_four(make, context):
    # 1 - (0 + 0 + 0)/3 = 1; 0 - (1 + 0 + 0)/3 = -1/3
    got = make.values(Rloo(RlooOptions(), context), make.group([1, 0, 0, 0]))
    np.testing.assert_allclose(got, [1, -1 / 3, -1 / 3, -1 / 3], rtol=1e-6)


@pytest.mark.parametrize(("rule", "expected"), [("zero", 0.0), ("raw", 0.5)])
def test_rloo_of_a_group_that_shrank_to_one(rule, expected, make, context):
    assert make.values(Rloo(RlooOptions(singleton=rule), context), make.group([0.5])) == [expected]


def test_rloo_of_equal_rewards_is_exactly_zero(make, context):
    assert make.values(Rloo(RlooOptions(), context), make.group([0.1, 0.1, 0.1])) == [0, 0, 0]


@given(rewards=REWARDS)
def test_rloo_equals_its_definition(rewards, make, context):
    total, others = sum(rewards), len(rewards) - 1
    expected = [r - (total - r) / others for r in rewards]
    got = make.values(Rloo(RlooOptions(), context), make.group(rewards))
    np.testing.assert_allclose(got, expected, rtol=1e-6, atol=1e-6)
    assert abs(sum(got)) < 1e-4


def test_whitened_one_success_in_four_over_trajectories(make, context):
    # deviations 3/4, -1/4 x3: mean 0, sum of squares 3/4, ddof 1: variance 1/4 -> divided by 1/2
    options = ReinforcePlusPlusBaselineOptions(whiten_over="trajectories", epsilon=0.0)
    got = make.values(ReinforcePlusPlusBaseline(options, context), make.group([1, 0, 0, 0]))
    np.testing.assert_allclose(got, [1.5, -0.5, -0.5, -0.5], rtol=1e-6)


def test_whitened_over_tokens_counts_long_trajectories_more(make, context):
    # deviations 1/2 (3 tokens) and -1/2 (1 token): mean over tokens (3/2 - 1/2)/4 = 1/4,
    # squares 3 * (1/4)^2 + (3/4)^2 = 3/4, ddof 1: 1/4 -> (1/2 - 1/4)/(1/2) = 1/2 and (-1/2 - 1/4)/(1/2) = -3/2
    options = ReinforcePlusPlusBaselineOptions(epsilon=0.0)
    group = make.group([1, 0], masks=[[0, 1, 1, 1], [0, 1]])
    got = make.values(ReinforcePlusPlusBaseline(options, context), group)
    np.testing.assert_allclose(got, [0.5, -1.5], rtol=1e-6)


def test_whitening_crosses_groups_and_a_group_of_one_has_no_deviation(make, context):
    # deviations 1/2, -1/2 and 0 (alone), once each: variance (1/4 + 1/4)/2 = 1/4 -> 1, -1, 0
    options = ReinforcePlusPlusBaselineOptions(whiten_over="trajectories", epsilon=0.0)
    whitened = ReinforcePlusPlusBaseline(options, context)
    got = make.values(whitened, make.group([1, 0]), make.group([0.75], number=1))
    np.testing.assert_allclose(got, [1, -1, 0], atol=1e-7)


def test_whitening_nothing_but_equal_groups_gives_zero(make, context):
    whitened = ReinforcePlusPlusBaseline(ReinforcePlusPlusBaselineOptions(epsilon=0.0), context)
    assert make.values(whitened, make.group([0.1, 0.1, 0.1]), make.group([7], number=1)) == [0, 0, 0, 0]
    assert whitened.compute([]) == {}


@pytest.mark.parametrize("whiten_over", ["tokens", "trajectories"])
def test_what_has_no_sampled_token_does_not_count_in_the_whitening(whiten_over, make, context):
    whitened = ReinforcePlusPlusBaseline(ReinforcePlusPlusBaselineOptions(whiten_over=whiten_over), context)
    plain = make.group([1, 0, 0.5])
    extra = replace(plain.trajectories[2], id="masked", sequences=(make.sequence([0, 0]),))
    result = whitened.compute([plain.replacing((*plain.trajectories, extra))])
    assert result["masked"][0].tolist() == [0, 0]
    # with the masked one the deviations stay 1/2, -1/2, 0 (its own is 0), and only the three are counted
    np.testing.assert_allclose(result["g0-0"][0][1], make.values(whitened, plain)[0], rtol=1e-6)


def test_whitening_is_zero_when_only_what_is_not_trained_on_differs(make, context):
    """The counted deviations are equal, so their variance is 0: with epsilon 0 the division would give NaN."""
    whitened = ReinforcePlusPlusBaseline(ReinforcePlusPlusBaselineOptions(epsilon=0.0), context)
    result = whitened.compute([make.group([1, 1, 0], masks=[[0, 1], [0, 1, 1], [0, 0]])])
    assert [result[f"g0-{i}"][0].tolist() for i in range(3)] == [[0, 0], [0, 0, 0], [0, 0]]


@given(
    batches=st.lists(REWARDS, min_size=1, max_size=4),
    lengths=st.lists(st.integers(1, 5), min_size=40, max_size=40),
    ddof=st.sampled_from([0, 1]),
)
def test_whitened_over_tokens_equals_a_float64_reference(batches, lengths, ddof, make, context):
    groups, tokens = [], []
    for number, rewards in enumerate(batches):
        own = [lengths.pop() for _ in rewards]
        groups.append(make.group(rewards, number=number, masks=[[1] * n for n in own]))
        for reward, n in zip(rewards, own, strict=True):
            tokens += [reward - np.mean(rewards)] * n
    options = ReinforcePlusPlusBaselineOptions(ddof=ddof)
    got = make.values(ReinforcePlusPlusBaseline(options, context), *groups)
    std = np.sqrt(np.var(tokens, ddof=ddof) + 1e-8)
    firsts = np.cumsum([0] + [t.sampled_count for g in groups for t in g.trajectories])[:-1]
    expected = ((np.array(tokens) - np.mean(tokens)) / std)[firsts]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    "component", [(Rloo, RlooOptions), (ReinforcePlusPlusBaseline, ReinforcePlusPlusBaselineOptions)]
)
def test_a_trajectory_without_a_verdict_is_named(component, make, context):
    factory, options = component
    with pytest.raises(ValidationError, match="g3-1"):
        factory(options(), context).compute([make.group([1, None], number=3)])
