"""Rounding, what overflows, and what is refused."""

from typing import Any

import numpy as np
import pytest
from miles_core import BuildContext, RequestError, RunError, TensorInfo, WireTensor
from numpy.typing import NDArray

from miles_plugin_xyz.options import XyzOptions
from miles_plugin_xyz.precision import XyzPrecision


def made(**options: Any) -> XyzPrecision:
    chosen = XyzOptions(**options)
    return XyzPrecision(chosen, BuildContext(seed=1, name="precision"))


def encoded(values: list[float], **options: Any) -> NDArray[np.float16]:
    data = np.array(values, np.float32)
    (sent,) = made(**options).encode(WireTensor(TensorInfo("w", data.shape, "float32"), data.view(np.uint8)))
    assert sent.info == TensorInfo("w", data.shape, "float16")
    return sent.data.view(np.float16)


def test_values_are_rounded_to_nearest_and_ties_to_even() -> None:
    assert encoded([2048.0, 2049.0, 2050.0, 2051.0]).tolist() == [2048.0, 2048.0, 2050.0, 2052.0]


def test_what_is_not_finite_stays() -> None:
    np.testing.assert_array_equal(encoded([np.inf, -np.inf, np.nan]), np.array([np.inf, -np.inf, np.nan], np.float16))


def test_an_overflow_stops_the_run() -> None:
    with pytest.raises(RunError, match="'w' has -70000, beyond the largest float16, 65504"):
        encoded([1.0, -70000.0])


def test_or_is_clamped() -> None:
    assert encoded([1.0, -70000.0, 1e30], overflow="clamp").tolist() == [1.0, -65504.0, 65504.0]


def test_other_dtypes_are_refused_by_name() -> None:
    with pytest.raises(RequestError, match="'w' of dtype bfloat16"):
        made().layout(TensorInfo("w", (2,), "bfloat16"))
