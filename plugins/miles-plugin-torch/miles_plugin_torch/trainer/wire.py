"""Weights as what a transport carries: the trainer's float32, encoded by the run's precision."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from transformers import PreTrainedModel

from miles_core import Precision, TensorInfo, WireTensor
from miles_plugin_torch.trainer.checkpointing import model_tensors


def tensor_infos(model: PreTrainedModel, precision: Precision | None) -> tuple[TensorInfo, ...]:
    """Every tensor that `wire_tensors` yields, in order."""
    infos = (_info(name, tensor) for name, tensor in model_tensors(model).items())
    if precision is None:
        return tuple(infos)
    return tuple(encoded for info in infos for encoded in precision.layout(info))


def wire_tensors(model: PreTrainedModel, precision: Precision | None) -> Iterator[WireTensor]:
    """The weights one by one. On a CPU, unless a precision converts them, the bytes are the live weights' own: copy
    them before the next optimizer step."""
    for name, tensor in model_tensors(model).items():
        ready = tensor.detach().cpu().contiguous()
        wired = WireTensor(_info(name, tensor), ready.view(-1).view(torch.uint8).numpy())
        if precision is None:
            yield wired
        else:
            yield from precision.encode(wired)


def _info(name: str, tensor: torch.Tensor) -> TensorInfo:
    return TensorInfo(name, tuple(tensor.shape), str(tensor.dtype).removeprefix("torch."))
