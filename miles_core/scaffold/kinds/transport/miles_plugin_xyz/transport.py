"""Weights as files in a folder that both sides see."""

import asyncio
import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np
from miles_core import (
    BuildContext,
    Delivery,
    Form,
    RunError,
    TensorInfo,
    UpdateTarget,
    WeightSource,
    WireTensor,
)

from miles_plugin_xyz.options import XyzOptions


class XyzTransport:
    """`send` and `release` run beside the trainer, `receive` beside each engine, `transfer` in the driver.

    See `miles_core.Transport`.
    """

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self._folder = options.folder or context.folder
        self._sent: dict[int, Path] = {}

    async def transfer(self, version: int, source: WeightSource, targets: tuple[UpdateTarget, ...]) -> None:
        try:
            delivery = await source.send(version)
            await asyncio.gather(*(target.load(delivery) for target in targets))
        finally:
            await source.release(version)

    def send(self, version: int, tensors: Iterable[WireTensor]) -> Delivery:
        folder = Path(tempfile.mkdtemp(prefix=f"weights-{version}-", dir=self._folder))
        self._sent[version] = folder
        entries = []
        for number, tensor in enumerate(tensors):
            file = folder / f"{number}.bin"
            data = tensor.data.tobytes()
            file.write_bytes(data)
            entries.append(
                {
                    "name": tensor.info.name,
                    "shape": list(tensor.info.shape),
                    "dtype": tensor.info.dtype,
                    "file": str(file),
                    "sha256": hashlib.sha256(data).hexdigest(),
                }
            )
        return Delivery(Form.TENSORS, "xyz", {"version": version, "tensors": entries})

    def release(self, version: int) -> None:
        folder = self._sent.pop(version, None)
        if folder is not None:
            shutil.rmtree(folder)

    def receive(self, delivery: Delivery) -> Iterator[WireTensor]:
        for entry in delivery.address["tensors"]:
            data = Path(entry["file"]).read_bytes()
            if hashlib.sha256(data).hexdigest() != entry["sha256"]:
                raise RunError(
                    f"tensor {entry['name']!r} of version {delivery.address['version']} is damaged",
                    where=entry["file"],
                    mend="look at the file system; the old weights stay in use",
                )
            info = TensorInfo(entry["name"], tuple(entry["shape"]), entry["dtype"])
            yield WireTensor(info, np.frombuffer(data, np.uint8))
