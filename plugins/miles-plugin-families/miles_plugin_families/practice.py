"""A practice model: a small Llama with random weights and a family's tokenizer and chat format.

It says nothing sensible, but it is sampled, trained and served like the family's own checkpoints: what a session does
with the family's tokens can be tried without one.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from miles_core import ModelCard, cache_root, make_once
from miles_plugin_families.catalog import STAND_IN, Family
from miles_plugin_families.packaged import write_tokenizer

LAYERS, HEAD, CONTEXT, DEVIATION = 2, 8, 4096, 0.02
_EDITION = 1
"""Counts up whenever other files are written."""


def practice_card(family: Family, width: int, context: int | None) -> ModelCard:
    """Of a practice model that need not exist yet. Its stop tokens are the renderer's to say."""
    sizes = _shapes(family.vocabulary, width)
    return ModelCard(
        name=f"{family.name}-practice-{width}",
        architecture="LlamaForCausalLM",
        context=context or CONTEXT,
        vocabulary=family.vocabulary,
        hidden=width,
        layers=LAYERS,
        parameters=sum(int(np.prod(shape)) for shape in sizes.values()),
        stop_tokens=(),
        tied_embeddings=True,
    )


def practice_folder(family: Family, width: int) -> Path:
    """The Hugging Face directory, written into the cache when it is not there yet. Raises RequestError as `make_once`
    and `write_tokenizer` do."""
    tokens = family.tokenizer if family.tokenizer != STAND_IN else family.name
    folder = cache_root() / "models" / f"practice-{tokens}-{width}-v{_EDITION}"

    def make(empty: Path) -> None:
        write_tokenizer(family, empty / "tokenizer.json")
        source = np.random.default_rng(0)
        weights = {
            name: np.ones(shape, np.float32)
            if len(shape) == 1
            else (DEVIATION * source.standard_normal(shape, np.float32))
            for name, shape in _shapes(family.vocabulary, width).items()
        }
        save_file(weights, empty / "model.safetensors", metadata={"format": "pt"})
        (empty / "config.json").write_text(json.dumps(_config(family.vocabulary, width), indent=2) + "\n")

    return make_once(folder, make, what=f"the practice model of {tokens}")


def _shapes(vocabulary: int, width: int) -> dict[str, tuple[int, ...]]:
    layer: dict[str, tuple[int, ...]] = {
        **{f"self_attn.{name}_proj": (width, width) for name in "qkvo"},
        **{f"mlp.{name}_proj": (2 * width, width) for name in ("gate", "up")},
        "mlp.down_proj": (width, 2 * width),
        "input_layernorm": (width,),
        "post_attention_layernorm": (width,),
    }
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (vocabulary, width)}
    for number in range(LAYERS):
        shapes |= {f"model.layers.{number}.{name}.weight": shape for name, shape in layer.items()}
    return shapes | {"model.norm.weight": (width,)}


def _config(vocabulary: int, width: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": vocabulary,
        "hidden_size": width,
        "intermediate_size": 2 * width,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": width // HEAD,
        "num_key_value_heads": width // HEAD,
        "head_dim": HEAD,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": CONTEXT,
        "rope_theta": 10000.0,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": None,
        "dtype": "float32",
    }
