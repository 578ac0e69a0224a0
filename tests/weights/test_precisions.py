"""The core's precisions against values worked by hand."""

from __future__ import annotations

import numpy as np
import pytest

from miles_core import BuildContext, NoOptions, RequestError, TensorInfo, WireTensor
from miles_core.weights.bf16 import Bf16, round_to_bf16
from miles_core.weights.fp32 import Fp32


def wire(values, dtype="float32") -> WireTensor:
    array = np.asarray(values)
    return WireTensor(TensorInfo("w", array.shape, dtype), array.view(np.uint8).ravel())


def test_bf16_rounds_to_nearest_even():
    # float32 bits -> their upper half, rounded: below half down, above half up, halves to the even neighbour
    bits = np.array([0x3F800000, 0x3F807FFF, 0x3F808000, 0x3F818000, 0x3F808001, 0xFF800000, 0x7F7FFFFF], np.uint32)
    expected = [0x3F80, 0x3F80, 0x3F80, 0x3F82, 0x3F81, 0xFF80, 0x7F80]
    assert round_to_bf16(bits.view(np.float32)).tolist() == expected


def test_bf16_keeps_nan_a_nan():
    bits = np.array([0x7FFFFFFF, 0x7F800001, 0xFFC00000], np.uint32)
    for found in round_to_bf16(bits.view(np.float32)).tolist():
        assert found & 0x7F80 == 0x7F80 and found & 0x7F


def test_layout_and_encoding_agree():
    precision = Bf16(NoOptions(), BuildContext(1, "p"))
    tensor = wire(np.linspace(-3, 3, 6, dtype=np.float32).reshape(2, 3))
    (encoded,) = precision.encode(tensor)
    assert [encoded.info] == list(precision.layout(tensor.info))
    assert encoded.data.nbytes == encoded.info.bytes == 12


def test_fp32_converts_nothing():
    precision = Fp32(NoOptions(), BuildContext(1, "p"))
    tensor = wire(np.ones(3, np.float32))
    assert list(precision.encode(tensor)) == [tensor]
    with pytest.raises(RequestError, match="bfloat16"):
        precision.encode(wire(np.ones(3, np.uint16), "bfloat16"))
