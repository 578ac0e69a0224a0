"""Any other causal language model, and models that see, computed by transformers with the attention callback of
`attention`."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from miles_core import ModelFiles, TensorInfo
from miles_plugin_torch.attention import attending
from miles_plugin_torch.engine.decoder import Attend, Staging
from miles_plugin_torch.engine.sampling import in_blocks
from miles_plugin_torch.loading import load_model
from miles_plugin_torch.vision import ARCHITECTURES, Vision


class ModelStaging:
    """Tensors that wait, by name, until the update is complete."""

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self.tensors: dict[str, torch.Tensor] = {}
        self._device, self._dtype = device, dtype

    def put(self, name: str, tensor: torch.Tensor) -> None:
        self.tensors[name] = tensor.to(self._device, self._dtype, copy=True)


class ModelDecoder:
    """A `Decoder` around a transformers model. Its final states are the logits themselves, since what a model does to
    them (scaling, capping) is its own business."""

    def __init__(self, files: ModelFiles, context: int, device: str, dtype: torch.dtype) -> None:
        self._model: PreTrainedModel = load_model(
            files, dtype=str(dtype).removeprefix("torch."), device=device, weights=False
        )
        config = self._model.config.get_text_config()
        self.layers = int(config.num_hidden_layers)
        heads = int(config.num_attention_heads)
        self.kv_heads = int(getattr(config, "num_key_value_heads", None) or heads)
        self.head_dim = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
        self.vocabulary, self.context = int(config.vocab_size), context
        self._device, self._dtype = torch.device(device), dtype
        self._parameters = dict(self._model.named_parameters())  # tied ones once
        self.tensors = tuple(
            TensorInfo(name, tuple(parameter.shape), str(dtype).removeprefix("torch."))
            for name, parameter in self._parameters.items()
        )
        self.aliases = self._tied_names()
        self.vision = Vision(self._model, cached=True) if files.card.architecture in ARCHITECTURES else None
        self._usable = False

    def staging(self) -> ModelStaging:
        return ModelStaging(self._device, self._dtype)

    def adopt(self, staging: Staging) -> None:
        assert isinstance(staging, ModelStaging)
        for name, tensor in staging.tensors.items():
            self._parameters[name].data.copy_(tensor)
        if self.vision is not None:
            self.vision.changed()
        self._usable = True

    def drop(self) -> None:
        self._usable = False

    def final(
        self, tokens: torch.Tensor, positions: torch.Tensor, attend: Attend, keep: torch.Tensor | None
    ) -> torch.Tensor:
        if not self._usable:
            raise RuntimeError("the decoder has no weights")
        kept = torch.arange(len(tokens), device=tokens.device) if keep is None else keep
        if self.vision is not None:
            with attending(attend):
                hidden = self.vision.hidden(tokens, positions)[kept]
                seen: torch.Tensor = self._model.get_output_embeddings()(hidden)
            return seen
        with attending(attend):
            output = self._model(
                input_ids=tokens.unsqueeze(0), position_ids=positions.unsqueeze(0), use_cache=False, logits_to_keep=kept
            )
        logits: torch.Tensor = output.logits[0]
        return logits

    def logits(self, final: torch.Tensor) -> torch.Tensor:
        return in_blocks(final.float())

    def _tied_names(self) -> dict[str, str]:
        """Other names of the same parameters -> the name that updates use."""
        first = {id(parameter): name for name, parameter in self._parameters.items()}
        every = self._model.named_parameters(remove_duplicate=False)
        return {name: first[id(parameter)] for name, parameter in every if name != first[id(parameter)]}
