"""What is kept, what is dropped, and why."""

import pytest
from miles_core import BuildContext, Verdict
from miles_core.testing import make_group
from pydantic import ValidationError

from miles_plugin_xyz.filter import XyzFilter
from miles_plugin_xyz.options import XyzOptions


@pytest.mark.parametrize(
    ("texts", "verdict"),
    [
        (["12", "1234"], Verdict(True)),  # three on average
        (["12345", "12345"], Verdict(True)),
        (["", "123"], Verdict(False, "too-short")),
        (["123456", "12345"], Verdict(False, "too-long")),
    ],
)
def test_the_mean_length_decides(texts: list[str], verdict: Verdict) -> None:
    options = XyzOptions(shortest=3, longest=5)
    judge = XyzFilter(options, BuildContext(seed=1, name="filter"))
    assert judge.judge(make_group(texts)) == verdict


def test_bounds_that_nothing_fits_between_are_refused() -> None:
    with pytest.raises(ValidationError, match="no group would be kept"):
        XyzOptions(shortest=6, longest=5)
