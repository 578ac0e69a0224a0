"""Weights rounded to fewer bits of mantissa, to nearest, ties to even."""

from collections.abc import Iterable
from typing import Any

import numpy as np
from miles_core import BuildContext, RequestError, TensorInfo, WireTensor
from numpy.typing import NDArray

from miles_plugin_xyz.options import XyzOptions


class XyzPrecision:
    """float32 in, coarser float32 out. See `miles_core.Precision`."""

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self._bits = options.bits

    def layout(self, info: TensorInfo) -> Iterable[TensorInfo]:
        if info.dtype != "float32":
            raise RequestError(
                f"precision xyz got tensor {info.name!r} of dtype {info.dtype}",
                mend="keep the trainer's weights in float32, or choose a precision that takes them",
            )
        return (info,)

    def encode(self, tensor: WireTensor) -> Iterable[WireTensor]:
        (info,) = self.layout(tensor.info)
        values = rounded(tensor.data.view(np.float32), self._bits)
        return (WireTensor(info, values.view(np.uint8)),)


def rounded(values: NDArray[np.float32], bits: int) -> NDArray[Any]:
    """float32 [n] with at most `bits` bits of mantissa. Infinities and NaN stay what they are."""
    dropped = 23 - bits
    if dropped == 0:
        return values.copy()
    pattern = values.view(np.uint32)
    odd = (pattern >> np.uint32(dropped)) & np.uint32(1)
    half = np.uint32((1 << (dropped - 1)) - 1)
    kept = (pattern + half + odd) & np.uint32((0xFFFFFFFF << dropped) & 0xFFFFFFFF)
    return np.where(np.isfinite(values), kept, pattern).astype(np.uint32).view(np.float32)
