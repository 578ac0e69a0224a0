"""What the reward promises: shorter is better, one score for each trajectory, in order."""

import asyncio

import pytest
from miles_core import BuildContext, Score
from miles_core.testing import make_group
from pydantic import ValidationError

from miles_plugin_xyz.options import XyzOptions
from miles_plugin_xyz.reward import XyzReward


def values(texts: list[str], limit: int) -> list[float]:
    options = XyzOptions(limit=limit)
    reward = XyzReward(options, BuildContext(seed=1, name="reward"))
    scores: list[Score | None] = asyncio.run(reward.score(make_group(texts)))
    return [score.value for score in scores if score is not None]


def test_shorter_is_better() -> None:
    assert values(["", "12345", "1234567890"], limit=10) == [1.0, 0.5, 0.0]


def test_beyond_the_limit_nothing_is_left_to_lose() -> None:
    assert values(["x" * 11, "x" * 1000], limit=10) == [0.0, 0.0]


def test_the_limit_is_positive() -> None:
    with pytest.raises(ValidationError, match="limit"):
        XyzOptions(limit=0)
