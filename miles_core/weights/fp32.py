"""The `fp32` precision: engines hold what the trainer holds."""

from __future__ import annotations

from collections.abc import Iterable

from miles_core.contracts.component import BuildContext
from miles_core.contracts.options import NoOptions
from miles_core.contracts.transport import TensorInfo, WireTensor
from miles_core.errors import RequestError


class Fp32:
    """Passes float32 tensors through unchanged; any other dtype is refused: nothing is converted silently."""

    def __init__(self, options: NoOptions, context: BuildContext) -> None:
        pass

    def layout(self, info: TensorInfo) -> Iterable[TensorInfo]:
        if info.dtype != "float32":
            raise RequestError(
                f"precision fp32 got tensor {info.name!r} of dtype {info.dtype}",
                mend="choose a precision that takes it, or keep the trainer's weights in float32",
            )
        return (info,)

    def encode(self, tensor: WireTensor) -> Iterable[WireTensor]:
        self.layout(tensor.info)
        return (tensor,)
