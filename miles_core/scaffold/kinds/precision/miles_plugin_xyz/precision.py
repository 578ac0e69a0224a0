"""float32 weights as float16."""

from collections.abc import Iterable

import numpy as np
from miles_core import BuildContext, RequestError, RunError, TensorInfo, WireTensor

from miles_plugin_xyz.options import XyzOptions

LARGEST = np.finfo(np.float16).max


class XyzPrecision:
    """float32 in, float16 out, rounded to nearest and ties to even. See `miles_core.Precision`."""

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self._overflow = options.overflow

    def layout(self, info: TensorInfo) -> Iterable[TensorInfo]:
        if info.dtype != "float32":
            raise RequestError(
                f"precision xyz got tensor {info.name!r} of dtype {info.dtype}",
                mend="keep the trainer's weights in float32, or choose a precision that takes them",
            )
        return (TensorInfo(info.name, info.shape, "float16"),)

    def encode(self, tensor: WireTensor) -> Iterable[WireTensor]:
        (info,) = self.layout(tensor.info)
        values = tensor.data.view(np.float32)
        with np.errstate(over="ignore"):  # looked at below
            halves = values.astype(np.float16)
        lost = np.isfinite(values) & ~np.isfinite(halves)
        if lost.any():
            if self._overflow == "refuse":
                raise RunError(
                    f"tensor {info.name!r} has {values[lost][0]:g}, beyond the largest float16, {LARGEST:g}",
                    mend="choose `overflow: clamp`, or a precision with a larger range, such as bf16",
                )
            halves[lost] = np.copysign(LARGEST, values[lost])
        return (WireTensor(info, halves.view(np.uint8)),)
