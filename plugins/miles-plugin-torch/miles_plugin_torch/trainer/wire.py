"""Weights as what a transport carries."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from transformers import PreTrainedModel

from miles_core import TensorInfo, WireTensor
from miles_plugin_torch.trainer.checkpointing import model_tensors


def tensor_infos(model: PreTrainedModel, dtype: torch.dtype) -> tuple[TensorInfo, ...]:
    """Every tensor that `wire_tensors` yields, in order."""
    return tuple(
        TensorInfo(name, tuple(tensor.shape), _name(_wire_type(tensor, dtype)))
        for name, tensor in model_tensors(model).items()
    )


def wire_tensors(model: PreTrainedModel, dtype: torch.dtype) -> Iterator[WireTensor]:
    """The weights one by one. On a CPU in float32 the bytes are the live weights' own: copy them before the next
    optimizer step."""
    for name, tensor in model_tensors(model).items():
        ready = tensor.detach().to(device="cpu", dtype=_wire_type(tensor, dtype)).contiguous()
        info = TensorInfo(name, tuple(ready.shape), _name(ready.dtype))
        yield WireTensor(info, ready.view(-1).view(torch.uint8).numpy())


def _wire_type(tensor: torch.Tensor, dtype: torch.dtype) -> torch.dtype:
    return dtype if tensor.is_floating_point() else tensor.dtype


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
