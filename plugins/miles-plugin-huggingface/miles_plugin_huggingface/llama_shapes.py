"""The shapes that a configuration of the Llama family asks for, so that a mismatch is found before a process starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Shape = tuple[int, ...]

ARCHITECTURES = frozenset(
    {"LlamaForCausalLM", "MistralForCausalLM", "Qwen2ForCausalLM", "Qwen3ForCausalLM", "SmolLM3ForCausalLM"}
)


def expected_shapes(config: Mapping[str, Any]) -> dict[str, Shape]:
    """Weight name -> shape [out, in] of every matrix and of the layer norms (biases and q/k norms are left out).

    Raises KeyError when the configuration lacks a size.
    """
    hidden, vocabulary, mlp = config["hidden_size"], config["vocab_size"], config["intermediate_size"]
    heads = config["num_attention_heads"]
    kv_heads = config.get("num_key_value_heads") or heads
    head = config.get("head_dim") or hidden // heads
    layer: dict[str, Shape] = {
        "input_layernorm": (hidden,),
        "post_attention_layernorm": (hidden,),
        "self_attn.q_proj": (heads * head, hidden),
        "self_attn.k_proj": (kv_heads * head, hidden),
        "self_attn.v_proj": (kv_heads * head, hidden),
        "self_attn.o_proj": (hidden, heads * head),
        "mlp.gate_proj": (mlp, hidden),
        "mlp.up_proj": (mlp, hidden),
        "mlp.down_proj": (hidden, mlp),
    }
    shapes: dict[str, Shape] = {"model.embed_tokens.weight": (vocabulary, hidden), "model.norm.weight": (hidden,)}
    for index in range(config["num_hidden_layers"]):
        shapes |= {f"model.layers.{index}.{name}.weight": shape for name, shape in layer.items()}
    if not config.get("tie_word_embeddings", False):
        shapes["lm_head.weight"] = (vocabulary, hidden)
    return shapes


def mismatches(config: Mapping[str, Any], found: Mapping[str, Shape]) -> list[str]:
    """Sentences: each weight that is missing, has another shape, or belongs to a layer that the config has not."""
    expected = expected_shapes(config)
    wrong = [f"{name} is missing" for name in expected if name not in found]
    wrong += [
        f"{name} has shape {list(found[name])}, the configuration asks for {list(shape)}"
        for name, shape in expected.items()
        if name in found and found[name] != shape
    ]
    beyond = f"model.layers.{config['num_hidden_layers']}."
    wrong += [f"{name} is of a layer that the configuration has not" for name in found if name.startswith(beyond)]
    return wrong
