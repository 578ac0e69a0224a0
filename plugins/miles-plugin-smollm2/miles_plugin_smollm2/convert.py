"""One GGUF file to one Hugging Face directory: fp32 weights, configuration, tokenizer."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader, ReaderTensor
from gguf.quants import dequantize
from safetensors import SafetensorError
from safetensors.numpy import save_file

from miles_plugin_smollm2.tokenizer import tokenizer_config, write_tokenizer

FloatArray = npt.NDArray[np.float32]

_OUTER = {"token_embd.weight": "model.embed_tokens.weight", "output_norm.weight": "model.norm.weight"}
_INNER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def convert(gguf: Path, folder: Path) -> None:
    """Write the Hugging Face directory of `gguf` into `folder`. Raises KeyError for a tensor that a Llama has not."""
    reader = GGUFReader(gguf)
    facts = _Facts(reader)
    print("smollm2: converting to a Hugging Face folder (0.5 GB, about 20 s)", file=sys.stderr, flush=True)
    _save(_weights(reader, facts), folder / "model.safetensors")
    write_tokenizer(
        folder / "tokenizer.json",
        tokens=facts["tokenizer.ggml.tokens"],
        kinds=facts["tokenizer.ggml.token_type"],
        merges=facts["tokenizer.ggml.merges"],
    )
    config = _config(facts)
    _write_json(folder / "config.json", config)
    _write_json(
        folder / "tokenizer_config.json",
        tokenizer_config(facts["tokenizer.ggml.tokens"], config, facts["tokenizer.chat_template"]),
    )
    special = ("bos_token_id", "eos_token_id", "pad_token_id")
    _write_json(folder / "generation_config.json", {key: config[key] for key in special})


class _Facts:
    """The key-value part of a GGUF file."""

    def __init__(self, reader: GGUFReader) -> None:
        self._fields = reader.fields

    def __getitem__(self, key: str) -> Any:
        return self._fields[key].contents()


def _save(weights: dict[str, FloatArray], path: Path) -> None:
    try:
        save_file(weights, path, metadata={"format": "pt"})
    except SafetensorError as error:  # how the library reports a full disk
        raise OSError(str(error)) from error
    path.chmod(0o644)  # the library makes it private, but a cache may be shared


def _weights(reader: GGUFReader, facts: _Facts) -> dict[str, FloatArray]:
    heads = {"attn_q": facts["llama.attention.head_count"], "attn_k": facts["llama.attention.head_count_kv"]}
    weights: dict[str, FloatArray] = {}
    for tensor in reader.tensors:
        values = _plain(tensor)
        if tensor.name in _OUTER:
            weights[_OUTER[tensor.name]] = values
            continue
        _, layer, part, suffix = tensor.name.split(".")  # blk.<layer>.<part>.weight
        if part in heads:
            values = _halves(values, heads[part])
        weights[f"model.layers.{layer}.{_INNER[part]}.{suffix}"] = values
    return weights


def _plain(tensor: ReaderTensor) -> FloatArray:
    """The tensor in fp32, row-major [out, in] (GGUF lists dimensions from the fastest, numpy from the slowest)."""
    shape = tuple(int(size) for size in reversed(tensor.shape))
    values = dequantize(tensor.data, tensor.tensor_type).reshape(shape)
    return np.ascontiguousarray(values, dtype=np.float32)


def _halves(rows: FloatArray, heads: int) -> FloatArray:
    """Undo llama.cpp's order of the rows of q and k.

    llama.cpp rotates neighbouring pairs (0,1), (2,3)..., so its converter interleaves each head's rows; transformers
    rotates row i with row i + d/2. rows [heads * d, in] -> the same rows, first halves of all pairs before second.
    """
    interleaved = rows.reshape(heads, -1, 2, rows.shape[-1])
    return np.ascontiguousarray(interleaved.swapaxes(1, 2).reshape(rows.shape))


def _config(facts: _Facts) -> dict[str, Any]:
    theta = float(facts["llama.rope.freq_base"])
    heads = facts["llama.attention.head_count"]
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": facts["llama.vocab_size"],
        "hidden_size": facts["llama.embedding_length"],
        "intermediate_size": facts["llama.feed_forward_length"],
        "num_hidden_layers": facts["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": facts["llama.attention.head_count_kv"],
        "head_dim": facts["llama.embedding_length"] // heads,
        "hidden_act": "silu",
        "rms_norm_eps": float(np.format_float_positional(np.float32(facts["llama.attention.layer_norm_rms_epsilon"]))),
        "max_position_embeddings": facts["llama.context_length"],
        # transformers 5 reads rope_parameters, earlier ones and other engines rope_theta
        "rope_parameters": {"rope_type": "default", "rope_theta": theta},
        "rope_theta": theta,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": True,
        "bos_token_id": facts["tokenizer.ggml.bos_token_id"],
        "eos_token_id": facts["tokenizer.ggml.eos_token_id"],
        "pad_token_id": facts["tokenizer.ggml.padding_token_id"],
        "dtype": "float32",
        "initializer_range": 0.02,
        "use_cache": True,
    }


def _write_json(path: Path, data: dict[str, Any]) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n")
