"""Rounding to nearest, and what is refused."""

import numpy as np
import pytest
from miles_core import BuildContext, RequestError, TensorInfo, WireTensor
from numpy.typing import NDArray

from miles_plugin_xyz.options import XyzOptions
from miles_plugin_xyz.precision import XyzPrecision


def encoded(values: list[float], bits: int) -> NDArray[np.float32]:
    data = np.array(values, np.float32)
    tensor = WireTensor(TensorInfo("w", data.shape, "float32"), data.view(np.uint8))
    (sent,) = XyzPrecision(XyzOptions(bits=bits), BuildContext(seed=1, name="precision")).encode(tensor)
    assert sent.info == tensor.info
    return sent.data.view(np.float32)


def test_values_are_rounded_to_nearest_and_ties_to_even() -> None:
    assert encoded([1.0, 1.3, 1.25, 1.75, -1.3], bits=1).tolist() == [1.0, 1.5, 1.0, 2.0, -1.5]


def test_the_relative_error_is_bounded() -> None:
    values = np.random.default_rng(1).standard_normal(1000).astype(np.float32)
    error = np.abs(encoded(values.tolist(), bits=7) - values) / np.abs(values)
    assert 0 < error.max() <= 2**-8


def test_all_bits_change_nothing_and_what_is_not_finite_stays() -> None:
    values = [0.1, -0.0, np.inf, -np.inf, np.nan]
    np.testing.assert_array_equal(encoded(values, bits=23), np.array(values, np.float32))
    np.testing.assert_array_equal(encoded(values[2:], bits=3), np.array(values[2:], np.float32))


def test_other_dtypes_are_refused_by_name() -> None:
    precision = XyzPrecision(XyzOptions(), BuildContext(seed=1, name="precision"))
    with pytest.raises(RequestError, match="'w' of dtype bfloat16"):
        precision.layout(TensorInfo("w", (2,), "bfloat16"))
