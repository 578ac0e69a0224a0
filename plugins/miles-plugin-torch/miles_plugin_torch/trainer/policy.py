"""A causal language model as the trainer sees it: a packed micro-batch in, log-probs of its targets out.

One module, so that whatever wraps modules (sharding, compilation) wraps the whole computation, the output matrix
included.
"""

from __future__ import annotations

from contextlib import nullcontext
from functools import partial
from typing import Any

import torch
from torch.utils.checkpoint import checkpoint
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer

from miles_core import RequestError
from miles_plugin_torch.attention import attending, bound
from miles_plugin_torch.trainer.packed_attention import PackedAttention
from miles_plugin_torch.trainer.packing import MicroBatch
from miles_plugin_torch.trainer.token_logprobs import token_logprobs
from miles_plugin_torch.vision import ARCHITECTURES, Vision


class Policy(torch.nn.Module):
    """`model` whose attention is the callback of `miles_plugin_torch.attention`."""

    def __init__(self, model: PreTrainedModel, *, dtype: torch.dtype, logit_tokens: int, recompute: bool) -> None:
        super().__init__()
        self.model = model
        self.vision = Vision(model, cached=False) if type(model).__name__ in ARCHITECTURES else None
        self._dtype = dtype
        self._logit_tokens = logit_tokens
        if recompute:
            _recompute_layers(model)
        self._check_head()

    def forward(self, batch: MicroBatch) -> torch.Tensor:
        """float32 [M] log-probs of `batch.targets` at their temperatures."""
        device = self.model.device
        with attending(PackedAttention(batch.blocks, device)), self._precision(device):
            hidden = self._hidden(
                torch.from_numpy(batch.tokens).to(device), torch.from_numpy(batch.positions).to(device)
            )
        read = hidden.index_select(0, torch.from_numpy(batch.read_at).to(device))
        head = self.model.get_output_embeddings()
        return token_logprobs(
            read.to(self._dtype),
            head.weight,
            getattr(head, "bias", None),
            torch.from_numpy(batch.targets).to(device),
            torch.from_numpy(batch.temperature).to(device),
            self._logit_tokens,
        )

    def _hidden(self, tokens: torch.Tensor, positions: torch.Tensor) -> torch.Tensor:
        """[T, H] of tokens int64 [T]."""
        if self.vision is not None:
            return self.vision.hidden(tokens, positions)
        found = self.model.base_model(input_ids=tokens[None], position_ids=positions[None], use_cache=False)
        states: torch.Tensor = found.last_hidden_state[0]
        return states

    def _precision(self, device: torch.device) -> Any:
        """Weights are float32; a smaller type is what products are computed in."""
        if self._dtype == torch.float32:
            return nullcontext()
        return torch.autocast(device.type, dtype=self._dtype)

    @torch.no_grad()
    def _check_head(self) -> None:
        """Some architectures scale or cap their logits after the output matrix; those would be silently wrong here."""
        model = self.model
        count = min(4, int(model.config.get_text_config().vocab_size))
        tokens = torch.arange(count, device=model.device)[None]
        places = torch.arange(count, device=model.device)[None]
        with attending(_plain_causal):
            out = model(input_ids=tokens, position_ids=places, use_cache=False, output_hidden_states=False)
            hidden = model.base_model(input_ids=tokens, position_ids=places, use_cache=False).last_hidden_state
        ours = model.get_output_embeddings()(hidden)
        if not torch.allclose(out.logits.float(), ours.float(), rtol=1e-4, atol=1e-5, equal_nan=True):
            raise RequestError(
                f"{type(model).__name__} changes its logits after the output matrix; the torch trainer would miss that",
                mend="use a model whose logits are the output matrix times the last hidden state",
            )


def _plain_causal(_layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
    q, k, v = q.transpose(0, 1)[None], k.transpose(0, 1)[None], v.transpose(0, 1)[None]
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale, enable_gqa=True)
    return out[0].transpose(0, 1)


def _recompute_layers(model: PreTrainedModel) -> None:
    """Gradient checkpointing of every decoder layer that is trained.

    transformers checkpoints a layer only when `layer.training` is set. It is set on the layers alone, not on what is
    inside them: the policy must have no dropout, since old and new log-probs are compared.
    """

    def recomputed(function: Any, *arguments: Any, **named: Any) -> Any:
        return checkpoint(bound(partial(function, **named)), *arguments, use_reentrant=False)

    for layer in model.modules():
        if isinstance(layer, GradientCheckpointingLayer) and any(p.requires_grad for p in layer.parameters()):
            layer.gradient_checkpointing = True
            layer._gradient_checkpointing_func = recomputed
            layer.training = True
