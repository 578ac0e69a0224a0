"""A tiny random model in a Hugging Face directory: what an engine or a trainer is tried on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from miles_core.contracts.model import ModelCard, ModelFiles
from miles_core.testing.fakes.char_renderer import STOP, VOCABULARY
from miles_core.types.sequence import FloatArray

HIDDEN, LAYERS, HEADS, KEY_VALUE_HEADS, HEAD_SIZE, INTERMEDIATE, CONTEXT = 16, 2, 2, 1, 8, 32, 256
DEVIATION = 0.25
"""Large enough that the tokens' probabilities differ and depend on what stands before them."""


def tiny_model(folder: Path, *, seed: int = 0, layers: int = LAYERS) -> ModelFiles:
    """Write a Llama over `CharRenderer`'s vocabulary into a new or empty folder: 6 736 float32 parameters in 2 layers.

    config.json, model.safetensors, tokenizer.json; the same seed writes the same bytes. Needs the library safetensors.
    """
    from safetensors.numpy import save_file

    folder.mkdir(parents=True, exist_ok=True)
    weights = {name: _weight(name, shape, seed) for name, shape in _shapes(layers).items()}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(_config(layers), indent=2) + "\n")
    (folder / "tokenizer.json").write_text(json.dumps(_tokenizer(), indent=2) + "\n")
    card = ModelCard(
        name="tiny",
        architecture="LlamaForCausalLM",
        context=CONTEXT,
        vocabulary=VOCABULARY,
        hidden=HIDDEN,
        layers=layers,
        parameters=sum(weight.size for weight in weights.values()),
        stop_tokens=(STOP,),
        tied_embeddings=True,
    )
    return ModelFiles(folder, card)


def _shapes(layers: int) -> dict[str, tuple[int, ...]]:
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (VOCABULARY, HIDDEN)}
    for layer in range(layers):
        at = f"model.layers.{layer}"
        shapes |= {
            f"{at}.self_attn.q_proj.weight": (HEADS * HEAD_SIZE, HIDDEN),
            f"{at}.self_attn.k_proj.weight": (KEY_VALUE_HEADS * HEAD_SIZE, HIDDEN),
            f"{at}.self_attn.v_proj.weight": (KEY_VALUE_HEADS * HEAD_SIZE, HIDDEN),
            f"{at}.self_attn.o_proj.weight": (HIDDEN, HEADS * HEAD_SIZE),
            f"{at}.mlp.gate_proj.weight": (INTERMEDIATE, HIDDEN),
            f"{at}.mlp.up_proj.weight": (INTERMEDIATE, HIDDEN),
            f"{at}.mlp.down_proj.weight": (HIDDEN, INTERMEDIATE),
            f"{at}.input_layernorm.weight": (HIDDEN,),
            f"{at}.post_attention_layernorm.weight": (HIDDEN,),
        }
    shapes["model.norm.weight"] = (HIDDEN,)
    return shapes


def _weight(name: str, shape: tuple[int, ...], seed: int) -> FloatArray:
    if len(shape) == 1:
        return np.ones(shape, np.float32)
    source = np.random.default_rng([seed, *hashlib.sha256(name.encode()).digest()[:8]])
    return (DEVIATION * source.standard_normal(shape)).astype(np.float32)


def _config(layers: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": VOCABULARY,
        "hidden_size": HIDDEN,
        "intermediate_size": INTERMEDIATE,
        "num_hidden_layers": layers,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KEY_VALUE_HEADS,
        "head_dim": HEAD_SIZE,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": CONTEXT,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
        "rope_theta": 10000.0,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": STOP,
        "dtype": "float32",
    }


def _tokenizer() -> dict[str, Any]:
    """tokenizer.json of the library tokenizers: one token for each ASCII character, the stop token for code 0."""
    words = {"<stop>": STOP, **{chr(code): code for code in range(VOCABULARY) if code != STOP}}
    stop = {"id": STOP, "content": "<stop>", "special": True, "normalized": False}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{**stop, "single_word": False, "lstrip": False, "rstrip": False}],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": r"[\s\S]"},
            "behavior": "Isolated",
            "invert": False,
        },
        "post_processor": None,
        "decoder": {"type": "Fuse"},
        "model": {"type": "WordLevel", "vocab": words, "unk_token": "<none>"},
    }
