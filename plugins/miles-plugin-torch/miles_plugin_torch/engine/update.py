"""Weight updates, all or nothing: new weights are gathered beside the ones in use and adopted at the end."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open

from miles_core import Delivery, Form, RunError, TensorInfo, Transport, UpdateManifest, WireTensor
from miles_plugin_torch.engine.decoder import Decoder, Staging

DTYPES = {
    "float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16,
}  # fmt: skip
"""What may arrive; it is converted to the engine's dtype."""


@dataclass(slots=True)
class OpenUpdate:
    """An update between `begin` and `finish`. `arrived` names what came; `tied` keeps the first of two tied
    tensors until the second one comes."""

    manifest: UpdateManifest
    staging: Staging
    expected: dict[str, TensorInfo]
    arrived: set[str] = field(default_factory=set)
    tied: dict[str, torch.Tensor] = field(default_factory=dict)


class Updater:
    """The engine's side of a publication. `version` is that of the weights in use, None while there are none."""

    def __init__(self, decoder: Decoder, transport: Transport | None) -> None:
        self.version: int | None = None
        self.open: OpenUpdate | None = None
        self._decoder, self._transport = decoder, transport
        self._known = {info.name: info for info in decoder.tensors}
        for alias, name in decoder.aliases.items():
            self._known[alias] = TensorInfo(alias, self._known[name].shape, self._known[name].dtype)

    def begin(self, manifest: UpdateManifest) -> None:
        """Open an update. Raises RunError when one is open or the manifest does not fit the model."""
        if self.open is not None:
            raise RunError(f"an update to version {self.open.manifest.version} is already open")
        if manifest.form is Form.ADAPTER:
            raise RunError("the torch engine takes no adapters", mend="train the full model or its last layers")
        expected = {info.name: info for info in manifest.tensors}
        if manifest.form is Form.TENSORS:
            self._check(expected)
        self.open = OpenUpdate(manifest, self._decoder.staging(), expected)

    def load(self, delivery: Delivery) -> None:
        """Stage one delivery. Raises RunError when it fails or brings something else than the manifest says."""
        update = self._opened()
        if delivery.form is not update.manifest.form:
            raise RunError(f"a delivery of {delivery.form} arrived for an update by {update.manifest.form}")
        if delivery.form is Form.DISK:
            self._load_folder(update, Path(delivery.address["path"]))
            return
        if self._transport is None:
            raise RunError("this engine was built without a transport and cannot receive tensors")
        for wire in self._transport.receive(delivery):
            self._stage(update, wire.info, _tensor(wire))

    def finish(self) -> int:
        """Adopt the new weights. Raises RunError when tensors never arrived; the update then stays open."""
        update = self._opened()
        lacking = sorted(set(update.expected) - update.arrived)
        if lacking or not update.arrived:
            raise RunError(
                f"the update to version {update.manifest.version} lacks {len(lacking) or 'all'} tensors"
                + (f": {_few(lacking)}" if lacking else "")
            )
        self._decoder.adopt(update.staging)
        self.version, self.open = update.manifest.version, None
        return self.version

    def discard(self) -> None:
        """Forget an open update; the weights in use stay."""
        self.open = None

    def _opened(self) -> OpenUpdate:
        if self.open is None:
            raise RunError("no update is open")
        return self.open

    def _check(self, expected: dict[str, TensorInfo]) -> None:
        """Names, shapes and dtypes against the model; the first update must be complete."""
        faults = []
        unknown = sorted(set(expected) - set(self._known))
        if unknown:
            faults.append(f"the model has no tensors {_few(unknown)}")
        for name in sorted(set(expected) & set(self._known)):
            info, known = expected[name], self._known[name]
            if tuple(info.shape) != tuple(known.shape):
                faults.append(f"{name} has shape {tuple(info.shape)}, the model's has {tuple(known.shape)}")
            if info.dtype not in DTYPES:
                faults.append(f"{name} has dtype {info.dtype}, expected one of {', '.join(DTYPES)}")
        missing = sorted({info.name for info in self._decoder.tensors} - set(expected))
        if missing and self.version is None:
            faults.append(f"the first update must bring every tensor, but lacks {_few(missing)}")
        if faults:
            raise RunError("the update does not fit the model: " + "; ".join(faults[:5]))

    def _stage(self, update: OpenUpdate, info: TensorInfo, tensor: torch.Tensor) -> None:
        expected = update.expected.get(info.name)
        if expected is None or tuple(expected.shape) != tuple(info.shape) or expected.dtype != info.dtype:
            raise RunError(f"{info.name} {tuple(info.shape)} {info.dtype} arrived, but the manifest has {expected}")
        self._compare_tied(update, info.name, tensor)
        if info.name not in self._decoder.aliases:
            update.staging.put(info.name, tensor)
        update.arrived.add(info.name)

    def _compare_tied(self, update: OpenUpdate, arrived: str, tensor: torch.Tensor) -> None:
        """Where a checkpoint names one tensor twice, both must say the same."""
        for alias, name in self._decoder.aliases.items():
            if arrived not in (alias, name) or not {alias, name} <= set(update.expected):
                continue
            first = update.tied.pop(alias, None)
            if first is None:
                update.tied[alias] = tensor.clone()
            elif not torch.equal(first, tensor):
                raise RunError(f"{alias} and {name} are tied in this model, but their values differ")

    def _load_folder(self, update: OpenUpdate, folder: Path) -> None:
        """Every tensor of a Hugging Face directory."""
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise RunError(f"there are no safetensors in {folder}", where=str(folder))
        try:
            update.expected = {info.name: info for file in files for info in _contents(file)}
            self._check(update.expected)
            for file in files:
                with safe_open(file, framework="pt") as opened:
                    for name in opened.keys():  # noqa: SIM118  (not a mapping)
                        self._stage(update, update.expected[name], opened.get_tensor(name))
        except (OSError, SafetensorError) as error:
            raise RunError(f"weights could not be read: {error}", where=str(folder)) from error


def _contents(file: Path) -> Iterator[TensorInfo]:
    """Names, shapes and dtypes of a safetensors file, from its header."""
    dtypes = {"F64": "float64", "F32": "float32", "BF16": "bfloat16", "F16": "float16"}
    with safe_open(file, framework="pt") as opened:
        for name in opened.keys():  # noqa: SIM118
            part: Any = opened.get_slice(name)
            yield TensorInfo(name, tuple(part.get_shape()), dtypes.get(part.get_dtype(), str(part.get_dtype())))


def _tensor(wire: WireTensor) -> torch.Tensor:
    """A view of the bytes that arrived, valid as long as they are."""
    data = wire.data if wire.data.flags.writeable else np.array(wire.data)
    return torch.from_numpy(data).view(DTYPES[wire.info.dtype]).view(wire.info.shape)


def _few(names: Iterable[str]) -> str:
    names = list(names)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
