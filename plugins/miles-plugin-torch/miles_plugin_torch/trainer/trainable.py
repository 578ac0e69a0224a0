"""Which weights a trainer trains."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from miles_core import RequestError
from miles_plugin_torch.trainer.options import LastLayers, TorchTrainerOptions


def select_trainable(model: PreTrainedModel, options: TorchTrainerOptions) -> dict[str, torch.nn.Parameter]:
    """Mark what is trained by `requires_grad` and return it by name, each tied weight once.

    With the last N layers only, nothing below them has a gradient, so autograd keeps nothing of the layers below.
    Raises RequestError when the model has fewer layers than are to be trained or no list of decoder layers.
    """
    if isinstance(options.train, LastLayers):
        _freeze_all_but(model, options.train.last_layers)
    return {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}


def _freeze_all_but(model: PreTrainedModel, count: int) -> None:
    layers = getattr(model.base_model, "layers", None)
    norm = getattr(model.base_model, "norm", None)
    if layers is None or norm is None:
        raise RequestError(
            f"{type(model).__name__} has no `layers` and `norm`, so its last layers cannot be told",
            mend="use trainer.train: full",
        )
    if count > len(layers):
        raise RequestError(f"trainer.train.last_layers is {count}, but the model has {len(layers)} layers")
    model.requires_grad_(False)
    for part in (*layers[-count:], norm):
        part.requires_grad_(True)
