"""Writing a safetensors file tensor by tensor.

The library's own writer first copies every tensor into one list of bytes, which for a model with optimizer state is
three times the model. The format is simple enough to be written as it is read: the header's length (8 bytes, little
endian), a JSON header, the tensors' bytes (https://github.com/huggingface/safetensors, section "Format").
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import torch

DTYPES = {
    torch.float64: "F64", torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.int64: "I64",
    torch.int32: "I32", torch.uint8: "U8", torch.bool: "BOOL",
}  # fmt: skip


def write_tensors(tensors: Mapping[str, torch.Tensor], path: Path) -> None:
    """Write the tensors; one of them at a time is in memory beside themselves. Raises OSError when the disk is full."""
    header: dict[str, object] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, tensor in tensors.items():
        start, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [start, end]}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little"))
        file.write(text)
        for tensor in tensors.values():
            ready = tensor.detach().cpu().contiguous()
            file.write(ready.reshape(-1).view(torch.uint8).numpy().data)
