"""Which models the dense decoder computes, read from config.json; everything else goes through transformers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from miles_core import TensorInfo

FAMILIES = {
    "LlamaForCausalLM": "llama",
    "MistralForCausalLM": "mistral",
    "Qwen2ForCausalLM": "qwen2",
    "Qwen3ForCausalLM": "qwen3",
}
"""Hugging Face class -> `model_type` of the dense Llama family: pre-norm RMSNorm, rotary embedding, SwiGLU."""

ROPE_TYPES = ("default", "linear", "llama3")


@dataclass(frozen=True, slots=True)
class DenseShape:
    """Sizes of a dense decoder. `inverse_frequencies` float32 [head_dim/2]; `rope_scale` multiplies cos and sin."""

    layers: int
    hidden: int
    intermediate: int
    heads: int
    kv_heads: int
    head_dim: int
    vocabulary: int
    context: int
    eps: float
    tied: bool
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    qk_norm: bool
    inverse_frequencies: torch.Tensor
    rope_scale: float

    @property
    def q_size(self) -> int:
        return self.heads * self.head_dim

    @property
    def kv_size(self) -> int:
        return self.kv_heads * self.head_dim

    def tensors(self, dtype: str) -> tuple[TensorInfo, ...]:
        """Every tensor by its Hugging Face name, in the model's order; a tied head is not named twice."""
        found = [TensorInfo("model.embed_tokens.weight", (self.vocabulary, self.hidden), dtype)]
        for layer in range(self.layers):
            found.extend(
                TensorInfo(f"model.layers.{layer}.{name}", shape, dtype) for name, shape in self._layer_tensors()
            )
        found.append(TensorInfo("model.norm.weight", (self.hidden,), dtype))
        if not self.tied:
            found.append(TensorInfo("lm_head.weight", (self.vocabulary, self.hidden), dtype))
        return tuple(found)

    def _layer_tensors(self) -> list[tuple[str, tuple[int, ...]]]:
        linears = [
            ("self_attn.q_proj", self.q_size, self.hidden, self.qkv_bias),
            ("self_attn.k_proj", self.kv_size, self.hidden, self.qkv_bias),
            ("self_attn.v_proj", self.kv_size, self.hidden, self.qkv_bias),
            ("self_attn.o_proj", self.hidden, self.q_size, self.out_bias),
            ("mlp.gate_proj", self.intermediate, self.hidden, self.mlp_bias),
            ("mlp.up_proj", self.intermediate, self.hidden, self.mlp_bias),
            ("mlp.down_proj", self.hidden, self.intermediate, self.mlp_bias),
        ]
        found: list[tuple[str, tuple[int, ...]]] = []
        for name, rows, columns, bias in linears:
            found.append((f"{name}.weight", (rows, columns)))
            if bias:
                found.append((f"{name}.bias", (rows,)))
        if self.qk_norm:
            found += [("self_attn.q_norm.weight", (self.head_dim,)), ("self_attn.k_norm.weight", (self.head_dim,))]
        found += [("input_layernorm.weight", (self.hidden,)), ("post_attention_layernorm.weight", (self.hidden,))]
        return found


def why_not_dense(config: Any, architecture: str) -> str | None:
    """Why the dense decoder does not compute this model; None when it does."""
    if architecture not in FAMILIES:
        return f"architecture {architecture} is not one of {', '.join(FAMILIES)}"
    if getattr(config, "hidden_act", "silu") != "silu":
        return f"its activation is {config.hidden_act}, not silu"
    layer_types = getattr(config, "layer_types", None)
    if layer_types is not None and set(layer_types) != {"full_attention"}:
        return "not all of its layers have full attention"
    if layer_types is None and getattr(config, "sliding_window", None) is not None:
        return f"it has sliding-window attention (window {config.sliding_window})"
    rope = _rope(config)
    if rope["rope_type"] not in ROPE_TYPES:
        return f"its rotary embedding is of type {rope['rope_type']}, not one of {', '.join(ROPE_TYPES)}"
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        return "it rotates only a part of each head"
    if _head_dim(config) % 2:
        return f"its head size {_head_dim(config)} is odd"
    return None


def dense_shape(config: Any, architecture: str) -> DenseShape:
    """The sizes of a model for which `why_not_dense` is None."""
    family = FAMILIES[architecture]
    attention_bias = bool(getattr(config, "attention_bias", False))
    frequencies, scale = _frequencies(config)
    return DenseShape(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        intermediate=config.intermediate_size,
        heads=config.num_attention_heads,
        kv_heads=getattr(config, "num_key_value_heads", None) or config.num_attention_heads,
        head_dim=_head_dim(config),
        vocabulary=config.vocab_size,
        context=config.max_position_embeddings,
        eps=config.rms_norm_eps,
        tied=bool(config.tie_word_embeddings),
        qkv_bias=family == "qwen2" or (family in ("llama", "qwen3") and attention_bias),
        out_bias=family in ("llama", "qwen3") and attention_bias,
        mlp_bias=family == "llama" and bool(getattr(config, "mlp_bias", False)),
        qk_norm=family == "qwen3",
        inverse_frequencies=frequencies,
        rope_scale=scale,
    )


def _head_dim(config: Any) -> int:
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _rope(config: Any) -> dict[str, Any]:
    """The rotary embedding's parameters, as transformers 5 (`rope_parameters`) or 4 writes them."""
    rope = dict(getattr(config, "rope_parameters", None) or {})
    if not rope:
        rope = {"rope_theta": getattr(config, "rope_theta", 10000.0), **(getattr(config, "rope_scaling", None) or {})}
    rope.setdefault("rope_type", rope.get("type", "default"))
    return rope


def _frequencies(config: Any) -> tuple[torch.Tensor, float]:
    """theta^(-2i/d) for i < d/2 (RoFormer, arXiv 2104.09864 eq. 15), scaled as transformers does for other types."""
    rope = _rope(config)
    if rope["rope_type"] == "default":
        half = torch.arange(0, _head_dim(config), 2, dtype=torch.int64).to(torch.float32)
        return 1.0 / (rope["rope_theta"] ** (half / _head_dim(config))), 1.0
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    frequencies, scale = ROPE_INIT_FUNCTIONS[rope["rope_type"]](config, torch.device("cpu"))
    return frequencies.to(torch.float32), float(scale)
