"""A transport: how one version of the weights gets from the trainer to every engine, all or nothing.

One component plays three parts, each in its own process: `send` beside the trainer, `receive` beside each engine, and
`transfer` in the driver, which decides whether they run one after the other (shared memory, disk) or together
(a collective). Begin, finish and the check of the reported versions are the core's: `miles_core.weights`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from miles_core.types.sequence import Array


class Form(StrEnum):
    """What arrives at an engine: named tensors, a Hugging Face directory to read, or an adapter's tensors."""

    TENSORS = "tensors"
    DISK = "disk"
    ADAPTER = "adapter"


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """Name (Hugging Face's), shape and dtype (`float32`, `bfloat16`, ...) of one tensor."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def bytes(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count * DTYPE_BYTES[self.dtype]


DTYPE_BYTES = {
    "float64": 8, "float32": 4, "bfloat16": 2, "float16": 2, "float8_e4m3fn": 1, "uint8": 1, "int8": 1, "int32": 4,
    "int64": 8,
}  # fmt: skip


@dataclass(frozen=True, slots=True, eq=False)
class WireTensor:
    """One tensor on the way. `data` is a C-contiguous uint8 array of its bytes: numpy has no bfloat16."""

    info: TensorInfo
    data: Array


@dataclass(frozen=True, slots=True)
class UpdateManifest:
    """What an update will bring. `tensors` is complete: an update that lacks one of them cannot be finished.
    Empty for Form.DISK, where the directory itself is the manifest."""

    version: int
    form: Form = Form.TENSORS
    tensors: tuple[TensorInfo, ...] = ()
    adapter: str | None = None


@dataclass(frozen=True, slots=True)
class Delivery:
    """Where one part of an update lies. `address` is JSON data that only the transport that made it reads.

    Form.DISK has {"path": directory}, so that any engine can read it.
    """

    form: Form
    transport: str
    address: Mapping[str, Any] = field(default_factory=dict)


class UpdateTarget(Protocol):
    """An engine, as a transport's driver side sees it."""

    @property
    def name(self) -> str: ...
    async def load(self, delivery: Delivery) -> None: ...


class WeightSource(Protocol):
    """A trainer, as a transport's driver side sees it."""

    async def send(self, version: int) -> Delivery: ...
    async def release(self, version: int) -> None: ...


class Transport(Protocol):
    """See the module's text for which method runs where."""

    async def transfer(self, version: int, source: WeightSource, targets: tuple[UpdateTarget, ...]) -> None:
        """Driver: bring the version to all targets. Raises when any of them did not take it; always releases."""
        ...

    def send(self, version: int, tensors: Iterable[WireTensor]) -> Delivery:
        """Trainer's process: make the tensors reachable. Once it returns, their memory may change again."""
        ...

    def release(self, version: int) -> None:
        """Trainer's process: free what `send` holds. Idempotent."""
        ...

    def receive(self, delivery: Delivery) -> Iterator[WireTensor]:
        """Engine's process: the tensors of a delivery. The arrays are valid until the next item is asked for.
        Raises RunError when a tensor is truncated or its checksum differs."""
        ...


class Precision(Protocol):
    """One quantizer for four stages: checkpoint conversion, trainer forward, engine, live export."""

    def layout(self, info: TensorInfo) -> Iterable[TensorInfo]:
        """Names, shapes and dtypes of what `encode` makes of such a tensor. Raises RequestError for a dtype that it
        does not take."""
        ...

    def encode(self, tensor: WireTensor) -> Iterable[WireTensor]:
        """A trainer's tensor as the engines hold it, in the order of `layout`."""
        ...
