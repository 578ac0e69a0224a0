"""The `bf16` precision: float32 weights rounded to bfloat16, as an engine that computes in bfloat16 holds them."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from miles_core.contracts.component import BuildContext
from miles_core.contracts.options import NoOptions
from miles_core.contracts.transport import TensorInfo, WireTensor
from miles_core.errors import RequestError
from miles_core.types.sequence import Array


class Bf16:
    """Rounds to nearest, ties to even, like torch's and the hardware's conversion; infinities and NaN stay."""

    def __init__(self, options: NoOptions, context: BuildContext) -> None:
        pass

    def layout(self, info: TensorInfo) -> Iterable[TensorInfo]:
        if info.dtype not in ("float32", "bfloat16"):
            raise RequestError(f"precision bf16 got tensor {info.name!r} of dtype {info.dtype}")
        return (TensorInfo(info.name, info.shape, "bfloat16"),)

    def encode(self, tensor: WireTensor) -> Iterable[WireTensor]:
        (info,) = self.layout(tensor.info)
        if tensor.info.dtype == "bfloat16":
            return (tensor,)
        return (WireTensor(info, round_to_bf16(tensor.data.view(np.float32)).view(np.uint8)),)


def round_to_bf16(values: Array) -> Array:
    """The upper halves, uint16 [n], of float32 [n] rounded to nearest even."""
    bits = values.view(np.uint32)
    rounded = (bits + (0x7FFF + ((bits >> 16) & 1))) >> 16
    nan = (bits >> 16) | 0x40  # rounding could carry a NaN's fraction away; keep it quiet instead
    return np.where(np.isnan(values), nan, rounded).astype(np.uint16)
