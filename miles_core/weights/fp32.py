"""The `fp32` precision: engines hold what the trainer holds."""

from __future__ import annotations

from collections.abc import Iterable

from miles_core.contracts.component import BuildContext
from miles_core.contracts.options import NoOptions
from miles_core.contracts.transport import WireTensor
from miles_core.errors import RunError


class Fp32:
    """Passes float32 tensors through unchanged. Raises RunError for any other dtype: nothing is converted silently."""

    def __init__(self, options: NoOptions, context: BuildContext) -> None:
        pass

    def encode(self, tensor: WireTensor) -> Iterable[WireTensor]:
        if tensor.info.dtype != "float32":
            raise RunError(
                f"precision fp32 got tensor {tensor.info.name!r} of dtype {tensor.info.dtype}",
                mend="choose a precision that converts it, or train in float32",
            )
        return (tensor,)
