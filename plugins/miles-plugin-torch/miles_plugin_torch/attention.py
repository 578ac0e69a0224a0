"""One attention function for any Hugging Face causal model: whoever runs the model decides what attends to what.

transformers lets a model's attention be replaced by name. The function registered here under `ATTENTION` hands every
layer's queries, keys and values to the current callback, so that the engine can attend to its KV cache and the trainer
to packed sequences, with no padding and no dense mask. transformers builds no mask for a name that has no entry in its
mask table, which is why none is registered.

The callback is set for a block of code (`attending`), per thread and task. Code that runs the model again later, as
gradient checkpointing does in the backward pass (on a GPU in another thread), carries the callback along with `bound`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

import torch
from transformers import AttentionInterface, PretrainedConfig

from miles_core import RunError

ATTENTION = "miles_torch"
"""The name under which the function is registered with transformers (`attn_implementation`)."""

Attend = Callable[[int, torch.Tensor, torch.Tensor, torch.Tensor, float], torch.Tensor]
"""`attend(layer, q [T, heads, d], k [T, kv_heads, d], v [T, kv_heads, d], scale) -> [T, heads, d]`; rotary embedding
is already applied; the tensors may be strided views. `layer` counts from 0."""

Result = TypeVar("Result")

_current: ContextVar[Attend] = ContextVar("miles_torch_attend")

_HARMLESS = frozenset({"position_ids", "use_cache", "cache_position", "output_attentions", "output_hidden_states"})
"""Arguments that models pass down to attention and that do not change what it computes (positions are in the rotary
embedding, which was applied before)."""


@contextmanager
def attending(attend: Attend) -> Iterator[None]:
    """Let every layer of a model that is called inside the block attend by `attend`."""
    token = _current.set(attend)
    try:
        yield
    finally:
        _current.reset(token)


def bound(function: Callable[..., Result]) -> Callable[..., Result]:
    """`function`, which will see the callback that is current now, whenever and in whatever thread it is called."""
    attend = _current.get()

    def call(*arguments: Any, **named: Any) -> Result:
        with attending(attend):
            return function(*arguments, **named)

    return call


def supports(config: PretrainedConfig) -> str | None:
    """Why a model with this configuration cannot run on the callback; None when it can.

    What a configuration does not tell is refused when the model's attention passes it (`_forward`).
    """
    layer_types = getattr(config, "layer_types", None)
    if layer_types is not None:
        others = sorted(set(layer_types) - {"full_attention"})
        if others:
            return f"it has layers of type {', '.join(others)}; only full attention is supported"
    elif getattr(config, "sliding_window", None) is not None:
        return f"it has sliding-window attention (window {config.sliding_window}); only full attention is supported"
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        if getattr(config, name, None) is not None:
            return f"it caps logits ({name} {getattr(config, name)})"
    if getattr(config, "is_encoder_decoder", False):
        return "it is an encoder-decoder model"
    if getattr(config, "is_causal", True) is False:
        return "its attention is not causal"
    rope = getattr(config, "rope_parameters", None) or {}
    rope_type = rope.get("rope_type", "default") if isinstance(rope, dict) else "default"
    if rope_type in ("dynamic", "longrope"):
        return f"its rotary embedding ({rope_type}) depends on the longest sequence of the batch"
    return None


def _forward(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    is_causal: bool | None = None,
    **others: Any,
) -> tuple[torch.Tensor, None]:
    """What transformers calls: query [1, heads, T, d], key and value [1, kv_heads, T, d]; returns [1, T, heads, d]."""
    _refuse(module, query, attention_mask, dropout, is_causal, others)
    attend = _current.get(None)
    if attend is None:
        raise RunError(f"the model was called with attention {ATTENTION!r} outside of `attending`")
    scale = query.shape[-1] ** -0.5 if scaling is None else scaling
    q, k, v = (tensor[0].transpose(0, 1) for tensor in (query, key, value))
    return attend(int(module.layer_idx), q, k, v, scale).unsqueeze(0), None


def _refuse(
    module: torch.nn.Module,
    query: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float,
    is_causal: bool | None,
    others: dict[str, Any],
) -> None:
    """Raise RunError for anything that would change attention and that a callback does not see."""
    found = [
        name for name, value in others.items() if name not in _HARMLESS and value is not None and value is not False
    ]
    if attention_mask is not None:
        found.append("attention_mask")
    if dropout:
        found.append(f"dropout {dropout}")
    if is_causal is False or getattr(module, "is_causal", True) is False:
        found.append("attention that is not causal")
    if query.shape[0] != 1:
        found.append(f"a batch of {query.shape[0]} (sequences are packed into one row)")
    if found:
        raise RunError(
            f"{type(module).__name__} asks attention for {', '.join(found)}, which the torch plugin cannot honour",
            mend="use a model with plain causal attention, or a plugin made for this one",
        )


AttentionInterface.register(ATTENTION, _forward)
