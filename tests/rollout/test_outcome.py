"""What an agent says at the end is checked where it is said."""

import pytest

from miles_core.contracts.rollout import Outcome
from miles_core.errors import ValidationError


@pytest.mark.parametrize("reward", ["good", float("nan"), float("inf"), [1.0], {}])
def test_a_reward_is_a_finite_number_or_none(reward):
    with pytest.raises(ValidationError, match=r"Outcome\.reward"):
        Outcome(reward)


def test_metadata_is_a_mapping():
    with pytest.raises(ValidationError, match=r"Outcome\.metadata"):
        Outcome(0.5, ["turns", 3])


@pytest.mark.parametrize("reward", [None, 0, 1, -0.5])
def test_what_it_may_be(reward):
    assert Outcome(reward, {"turns": 3}).reward == reward
