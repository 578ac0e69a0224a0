"""The model `scratch`: a small Llama with random weights and one token for each character."""

from __future__ import annotations

import hashlib
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from miles_core import BuildContext, ModelCard, ModelFiles, Renderer, cache_root, make_once
from miles_plugin_huggingface.llama_shapes import expected_shapes
from miles_plugin_huggingface.options import BOS, EOS, PAD, SEPARATOR, SPECIAL, ScratchOptions

_FORMAT = 1
"""Counts up whenever the same options would write something else, so that an older cache is not taken for it."""

_DEVIATION = 0.02


class ScratchModel:
    """Everything is a function of the options and the seed; the folder is kept in the cache under their hash."""

    def __init__(self, options: ScratchOptions, context: BuildContext) -> None:
        self._options = options
        self._seed = context.seed if options.seed is None else options.seed

    def describe(self) -> ModelCard:
        return self._options.model_card()

    def materialise(self) -> ModelFiles:
        facts = self._options.model_dump(mode="json") | {"seed": self._seed, "format": _FORMAT}
        key = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]
        folder = make_once(cache_root() / "models" / f"scratch-{key}", self._write, what="the model from scratch")
        return ModelFiles(folder, self.describe())

    def renderer(self) -> Renderer:
        from miles_plugin_huggingface.scratch_renderer import ScratchRenderer

        return ScratchRenderer(self._options.characters)

    def _write(self, folder: Path) -> None:
        from safetensors import SafetensorError
        from safetensors.numpy import save_file

        options = self._options
        config = configuration(options)
        weights = initial_weights(config, self._seed)
        try:
            save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
        except SafetensorError as error:  # how the library reports a full disk
            raise OSError(str(error)) from error
        (folder / "model.safetensors").chmod(0o644)  # the library makes it private, but a cache may be shared
        write_tokenizer(folder / "tokenizer.json", options.characters)
        names = dict(zip(("pad_token", "bos_token", "eos_token", "sep_token"), SPECIAL, strict=True))
        tokenizer = {"tokenizer_class": "PreTrainedTokenizerFast", "model_max_length": options.context, **names}
        special = {"pad_token_id": PAD, "bos_token_id": BOS, "eos_token_id": EOS}
        for name, data in (("config", config), ("tokenizer_config", tokenizer), ("generation_config", special)):
            (folder / f"{name}.json").write_text(json.dumps(data, indent=2) + "\n")


def configuration(options: ScratchOptions) -> dict[str, Any]:
    """config.json of the model, for LlamaForCausalLM."""
    return {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": options.vocabulary,
        "hidden_size": options.hidden,
        "intermediate_size": options.mlp,
        "num_hidden_layers": options.layers,
        "num_attention_heads": options.heads,
        "num_key_value_heads": options.key_value_heads,
        "head_dim": options.head_size,
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": options.context,
        "rope_parameters": {"rope_type": "default", "rope_theta": options.rope_theta},
        "rope_theta": options.rope_theta,
        "attention_bias": False,
        "mlp_bias": False,
        "tie_word_embeddings": options.tied,
        "pad_token_id": PAD,
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "initializer_range": _DEVIATION,
        "dtype": "float32",
    }


def initial_weights(config: dict[str, Any], seed: int) -> dict[str, npt.NDArray[np.float32]]:
    """Normal with deviation 0.02; norms are 1; the two matrices of each layer that write into the residual stream are
    divided by sqrt(2 layers) (GPT-2, Radford et al. 2019, section 2.3). Each weight has a generator of its own, seeded
    by its name."""
    weights: dict[str, npt.NDArray[np.float32]] = {}
    for name, shape in expected_shapes(config).items():
        if len(shape) == 1:
            weights[name] = np.ones(shape, dtype=np.float32)
            continue
        source = np.random.default_rng([seed, *hashlib.sha256(name.encode()).digest()[:8]])
        writes = name.endswith(("o_proj.weight", "down_proj.weight"))
        deviation = _DEVIATION / math.sqrt(2 * config["num_hidden_layers"]) if writes else _DEVIATION
        weights[name] = (deviation * source.standard_normal(shape)).astype(np.float32)
    return weights


def write_tokenizer(path: Path, characters: str) -> None:
    """tokenizer.json: one token for each character, after the special tokens. Unknown characters are an error."""
    from tokenizers import AddedToken, Regex, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import WordLevel

    vocabulary = {token: id for id, token in enumerate((*SPECIAL, *characters))}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<none>"))  # absent from the vocabulary: encoding it fails
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    tokenizer.decoder = decoders.Fuse()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.save(str(path))
    assert tokenizer.token_to_id("<sep>") == SEPARATOR
