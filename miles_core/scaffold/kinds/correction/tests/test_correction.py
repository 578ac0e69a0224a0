"""What a token weighs, and what is reported."""

from typing import Any

import numpy as np
import pytest
from miles_core import BuildContext, TokenTerms
from numpy.typing import NDArray
from pydantic import ValidationError

from miles_plugin_xyz.correction import XyzCorrection
from miles_plugin_xyz.options import XyzOptions


def corrected(ratios: list[float]) -> TokenTerms[NDArray[Any]]:
    options = XyzOptions(bounds=(0.5, 2.0))
    correction = XyzCorrection(options, BuildContext(seed=1, name="correction"))
    return correction.correct(np.log(ratios), np.zeros(len(ratios), np.int64))


def test_ratios_are_clamped_to_the_bounds() -> None:
    np.testing.assert_allclose(corrected([0.1, 0.6, 1.0, 1.9, 8.0]).values, [0.5, 0.6, 1.0, 1.9, 2.0])


def test_what_was_clamped_is_reported_as_it_was() -> None:
    terms = corrected([0.1, 1.0, 8.0])
    np.testing.assert_allclose(terms.means["ratio_mean"], [0.1, 1.0, 8.0])
    np.testing.assert_allclose(terms.means["mismatch"], [0.9, 0.0, 7.0])
    assert terms.means["clipped"].tolist() == [1, 0, 1]
    assert terms.maxima["ratio_max"].max() == pytest.approx(8.0)


@pytest.mark.parametrize("bounds", [(1.5, 2.0), (0.5, 0.9), (-1.0, 2.0)])
def test_bounds_that_exclude_one_are_refused(bounds: tuple[float, float]) -> None:
    with pytest.raises(ValidationError, match="expected 0 <= low <= 1 <= high"):
        XyzOptions(bounds=bounds)
