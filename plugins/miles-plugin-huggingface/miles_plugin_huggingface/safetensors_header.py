"""What the headers of a folder's safetensors files say, without reading a weight.

A safetensors file is an 8-byte little-endian header length, a JSON header `{name: {dtype, shape, data_offsets}}`, and
the data that the offsets point into (https://huggingface.co/docs/safetensors, "Format").
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path

from miles_core import RequestError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_LONGEST_HEADER = 100_000_000  # bytes; the format's own limit


@dataclass(frozen=True, slots=True)
class TensorHeader:
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def has_weights(folder: Path) -> bool:
    """Whether every file of the weights is there; says nothing of what is in them."""
    if not (folder / INDEX).is_file() and not (folder / SINGLE).is_file():
        return False
    return all(path.is_file() for path in _files(folder))


def folder_tensors(folder: Path) -> dict[str, TensorHeader]:
    """Every tensor of a folder, sharded or not. Raises RequestError for a missing, truncated or unreadable file."""
    tensors: dict[str, TensorHeader] = {}
    for path in _files(folder):
        tensors.update(file_tensors(path))
    return tensors


def file_tensors(path: Path) -> dict[str, TensorHeader]:
    """The tensors of one file, whose length is what its header says."""
    try:
        actual = path.stat().st_size
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if actual < 8 or not 2 <= length <= min(_LONGEST_HEADER, actual - 8):
                raise ValueError(f"no header in {actual} bytes")
            header = json.loads(stream.read(length))
        entries = {name: entry for name, entry in header.items() if name != "__metadata__"}
        expected = 8 + length + max((entry["data_offsets"][1] for entry in entries.values()), default=0)
        tensors = {name: TensorHeader(entry["dtype"], tuple(entry["shape"])) for name, entry in entries.items()}
    except OSError as error:
        raise RequestError(f"weights cannot be read: {error.strerror}", where=str(path)) from error
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise RequestError(
            f"this is no safetensors file ({error})", where=str(path), mend="fetch or export the model again"
        ) from error
    if actual != expected:
        state = "truncated" if actual < expected else "longer than its header says"
        raise RequestError(
            f"the file is {state}: {actual} bytes, expected {expected}",
            where=str(path),
            mend="fetch or export the model again",
        )
    return tensors


def _files(folder: Path) -> list[Path]:
    if not (folder / INDEX).is_file():
        if not (folder / SINGLE).is_file():
            raise RequestError(
                "the folder has no safetensors weights",
                where=str(folder),
                mend="save them with `model.save_pretrained(folder, safe_serialization=True)`",
            )
        return [folder / SINGLE]
    try:
        names = set(json.loads((folder / INDEX).read_text())["weight_map"].values())
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise RequestError(f"the index of the weights cannot be read ({error})", where=str(folder / INDEX)) from error
    return [folder / name for name in sorted(names)]
