"""GRPO advantages against values worked by hand, a float64 reference, and what must hold for any rewards."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from miles_plugin_algorithms.grpo import Grpo, GrpoOptions
from miles_plugin_algorithms.rloo import Rloo, RlooOptions
from pydantic import ValidationError as OptionsError

from miles_core import ValidationError

# R = [1, 0, 0, 0], mean 1/4, deviations 3/4 and -1/4.
# sum of squares 9/16 + 3/16 = 3/4; variance with ddof 1: (3/4)/3 = 1/4, std 1/2; with ddof 0: (3/4)/4 = 3/16,
# std sqrt(3)/4 = 0.4330127. Leave-one-out: the others of the 1 have mean 0 and std 0; those of a 0 have mean 1/3 and,
# with ddof 1, variance (4/9 + 1/9 + 1/9)/2 = 1/3, std 0.5773503.
ROWS = [
    ("TRL, torchforge", {"epsilon": 1e-4}, 1.4997001, -0.4999000),  # 0.75 / 0.5001
    ("verl, SkyRL, slime, Miles", {"epsilon": 1e-6}, 1.4999970, -0.4999990),  # 0.75 / 0.500001
    ("OpenRLHF group_norm", {"epsilon": 1e-9}, 1.5, -0.5),
    ("AReaL", {"epsilon": 1e-5}, 1.4999700, -0.4999900),  # 0.75 / 0.50001
    ("rLLM, ART", {"ddof": 0, "epsilon": 1e-6}, 1.7320468, -0.5773489),  # 0.75 / 0.4330137
    ("open-instruct standard", {"ddof": 0, "epsilon": 1e-8}, 1.7320508, -0.5773502),
    ("NeMo-RL", {"baseline": "others", "epsilon": 0.0}, 1.0, -0.5773503),  # 1 - 0, std 0; (0 - 1/3) / 0.5773503
    ("prime-rl, tinker-cookbook, Dr.GRPO", {"scale": "none"}, 0.75, -0.25),
    ("RLOO", {"baseline": "others", "scale": "none"}, 1.0, -1 / 3),  # 1 - 0; 0 - 1/3
    ("MaxRL", {"scale": "mean", "epsilon": 0.0}, 3.0, -1.0),  # 0.75 / 0.25; -0.25 / 0.25
]


@pytest.mark.parametrize(("system", "options", "one", "zero"), ROWS, ids=[row[0] for row in ROWS])
def test_one_success_of_four_in_ten_systems(system, options, one, zero, make, context):
    got = make.values(Grpo(GrpoOptions(**options), context), make.group([1, 0, 0, 0]))
    np.testing.assert_allclose(got, [one, zero, zero, zero], rtol=0, atol=2e-7)


def test_defaults_are_the_second_row(make, context):
    assert make.values(Grpo(GrpoOptions(), context), make.group([1, 0, 0, 0])) == make.values(
        Grpo(GrpoOptions(baseline="mean", scale="std", ddof=1, epsilon=1e-6, singleton="zero"), context),
        make.group([1, 0, 0, 0]),
    )


def test_rloo_is_grpo_with_the_mean_of_the_others(make, context):
    group = make.group([1, 0, 0.5, 0.25, 0.25])
    grpo = Grpo(GrpoOptions(baseline="others", scale="none"), context)
    np.testing.assert_allclose(make.values(Rloo(RlooOptions(), context), group), make.values(grpo, group), rtol=1e-6)


@pytest.mark.parametrize("scale", ["std", "batch-std", "mean", "none"])
@pytest.mark.parametrize(("rule", "expected"), [("zero", 0.0), ("raw", 0.75)])
def test_a_group_that_shrank_to_one(scale, rule, expected, make, context):
    grpo = Grpo(GrpoOptions(scale=scale, singleton=rule), context)
    assert make.values(grpo, make.group([0.75]), make.group([1, 0], number=1))[0] == expected


@pytest.mark.parametrize("baseline", ["mean", "others"])
@pytest.mark.parametrize("scale", ["std", "batch-std", "none"])
def test_equal_rewards_give_exactly_zero(baseline, scale, make, context):
    """0.1 three times: its computed mean is not 0.1 and its computed std not 0; with epsilon 0 that would give -1."""
    grpo = Grpo(GrpoOptions(baseline=baseline, scale=scale, epsilon=0.0), context)
    assert make.values(grpo, make.group([0.1, 0.1, 0.1])) == [0.0, 0.0, 0.0]


def test_batch_std_uses_every_reward_of_the_batch(make, context):
    # group means 1/2 and 1; all rewards [1, 0, 1, 1, 1]: mean 4/5, squares 1/25*4 + 16/25 = 20/25, ddof 1: 1/5
    # std = 0.4472136; the first group gets 0.5/0.4472136 = 1.1180340 and its negative, the second 0
    grpo = Grpo(GrpoOptions(scale="batch-std", epsilon=0.0), context)
    got = make.values(grpo, make.group([1, 0]), make.group([1, 1, 1], number=1))
    np.testing.assert_allclose(got, [1.1180340, -1.1180340, 0, 0, 0], atol=1e-7)


def test_others_without_a_deviation_are_not_divided(make, context):
    """A group that shrank to two: the one other has no unbiased std, so (1 - 0) and (0 - 1) stay as they are."""
    got = make.values(Grpo(GrpoOptions(baseline="others"), context), make.group([1, 0]))
    assert got == [1.0, -1.0]


def test_groups_of_different_sizes_are_normalised_each_by_itself(make, context):
    grpo = Grpo(GrpoOptions(), context)
    sizes = [make.group([1, 0], number=0), make.group([3, 1, 2], number=1), make.group([0, 0, 1, 1, 5], number=2)]
    together = make.values(grpo, *sizes)
    assert together == [value for group in sizes for value in make.values(grpo, group)]
    # [3, 1, 2]: mean 2, std 1: +1, -1, 0 (over 1.000001)
    np.testing.assert_allclose(together[2:5], [1, -1, 0], atol=2e-6)


def test_every_sampled_token_of_every_sequence_gets_the_value(make, context):
    from dataclasses import replace

    group = make.group([1, 0])
    branched = replace(group.trajectories[0], sequences=(make.sequence([0, 1, 0, 1]), make.sequence([1, 0])))
    result = Grpo(GrpoOptions(scale="none"), context).compute([group.replacing((branched, group.trajectories[1]))])
    assert [a.tolist() for a in result["g0-0"]] == [[0, 0.5, 0, 0.5], [0.5, 0]]


def test_a_trajectory_without_a_verdict_is_named(make, context):
    with pytest.raises(ValidationError, match="g3-1"):
        Grpo(GrpoOptions(), context).compute([make.group([1, None, 0], number=3)])


def test_dividing_by_the_mean_refuses_negative_rewards(make, context):
    with pytest.raises(ValidationError, match=r"g0-1.*-0\.5"):
        Grpo(GrpoOptions(scale="mean"), context).compute([make.group([1, -0.5])])


def test_no_groups_no_advantages(context):
    assert Grpo(GrpoOptions(scale="batch-std"), context).compute([]) == {}


@pytest.mark.parametrize(
    "options",
    [
        {"baseline": "others", "scale": "mean"},
        {"ddof": 2},
        {"epsilon": -1},
        {"epsilon": float("nan")},
        {"scale": "standard"},
        {"normalise": True},
    ],
)
def test_options_that_mean_nothing_are_refused(options):
    with pytest.raises(OptionsError):
        GrpoOptions(**options)


REWARDS = st.lists(st.integers(-64, 64).map(lambda k: k / 16), min_size=2, max_size=12)


@given(rewards=REWARDS, scale=st.sampled_from(["std", "none"]), ddof=st.sampled_from([0, 1]))
def test_advantages_equal_a_float64_reference(rewards, scale, ddof, make, context):
    got = make.values(Grpo(GrpoOptions(scale=scale, ddof=ddof), context), make.group(rewards))
    mean = sum(rewards) / len(rewards)
    std = (sum((r - mean) ** 2 for r in rewards) / (len(rewards) - ddof)) ** 0.5
    divisor = std + 1e-6 if scale == "std" else 1.0
    np.testing.assert_allclose(got, [(r - mean) / divisor for r in rewards], rtol=1e-6, atol=1e-7)


@given(rewards=REWARDS, scale=st.sampled_from(["std", "none"]))
def test_advantages_of_a_group_sum_to_zero(rewards, scale, make, context):
    assert abs(sum(make.values(Grpo(GrpoOptions(scale=scale), context), make.group(rewards)))) < 1e-5


@given(
    rewards=REWARDS,
    shift=st.integers(-8, 8),
    baseline=st.sampled_from(["mean", "others"]),
    scale=st.sampled_from(["std", "none"]),
)
def test_a_constant_added_to_every_reward_changes_nothing(rewards, shift, baseline, scale, make, context):
    grpo = Grpo(GrpoOptions(baseline=baseline, scale=scale), context)
    shifted = make.group([r + shift for r in rewards])
    np.testing.assert_allclose(make.values(grpo, shifted), make.values(grpo, make.group(rewards)), rtol=1e-5, atol=1e-6)


@given(rewards=REWARDS, factor=st.sampled_from([0.25, 3.0, 1000.0]), ddof=st.sampled_from([0, 1]))
def test_dividing_by_the_std_forgets_the_unit_of_the_reward(rewards, factor, ddof, make, context):
    grpo = Grpo(GrpoOptions(ddof=ddof, epsilon=0.0), context)
    scaled = make.group([factor * r for r in rewards])
    np.testing.assert_allclose(make.values(grpo, scaled), make.values(grpo, make.group(rewards)), rtol=1e-5, atol=1e-6)


@given(rewards=REWARDS, data=st.data())
def test_the_order_of_trajectories_does_not_matter(rewards, data, make, context):
    order = data.draw(st.permutations(range(len(rewards))))
    assume(list(order) != sorted(order))
    grpo = Grpo(GrpoOptions(), context)
    plain = make.values(grpo, make.group(rewards))
    np.testing.assert_allclose(
        make.values(grpo, make.group([rewards[i] for i in order])), [plain[i] for i in order], rtol=1e-6, atol=1e-7
    )
