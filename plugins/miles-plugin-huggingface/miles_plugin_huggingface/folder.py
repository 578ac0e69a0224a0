"""A Hugging Face directory: its card, and whether it is complete."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from miles_core import ModelCard, Problem, RequestError
from miles_plugin_huggingface.llama_shapes import ARCHITECTURES, mismatches
from miles_plugin_huggingface.safetensors_header import folder_tensors

_CONTEXT_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length", "n_ctx")
_EXPERT_KEYS = ("num_experts", "num_local_experts", "n_routed_experts")
_NOT_A_WEIGHT = ("rotary_emb.inv_freq", "attn.bias", "attn.masked_bias")
"""Ends of names of constants that old checkpoints store beside the weights."""


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object. Raises RequestError when the file is missing or is something else."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RequestError(
            f"{path.name} is missing", where=str(path.parent), mend="give a complete Hugging Face directory"
        ) from error
    except (OSError, ValueError) as error:
        raise RequestError(f"the file cannot be read as JSON: {error}", where=str(path)) from error
    if not isinstance(data, dict):
        raise RequestError(f"expected a JSON object, found {type(data).__name__}", where=str(path))
    return data


def read_card(folder: Path, *, name: str, context: int | None, parameters: int | None = None) -> ModelCard:
    """The card from config.json, generation_config.json and, unless `parameters` is given, the weights' headers.

    `context` shortens the model's own. Raises RequestError naming the file and the key.
    """
    whole = read_json(folder / "config.json")
    config: dict[str, Any] = whole.get("text_config") or whole  # a multimodal model's language part
    longest = _first(config, _CONTEXT_KEYS)
    missing = [key for key in ("hidden_size", "num_hidden_layers", "vocab_size") if key not in config]
    if longest is None:
        missing.append(_CONTEXT_KEYS[0])
    if not whole.get("architectures"):
        missing.append("architectures")
    if missing:
        raise RequestError(f"config.json has no {', '.join(missing)}", where=str(folder / "config.json"))
    if context is not None and context > longest:
        raise RequestError(
            f"context {context} is longer than the model's own {longest}", where="model.context", mend="leave it out"
        )
    return ModelCard(
        name=name,
        architecture=whole["architectures"][0],
        context=context or longest,
        vocabulary=config["vocab_size"],
        hidden=config["hidden_size"],
        layers=config["num_hidden_layers"],
        parameters=_count(folder, config) if parameters is None else parameters,
        stop_tokens=_stop_tokens(folder, whole, config),
        experts=_first(config, _EXPERT_KEYS) or 0,
        tied_embeddings=_tied(whole, config),
    )


def check_folder(folder: Path) -> None:
    """Raises RequestError with every file that is missing or truncated, and every weight of another shape (Llama
    family; of other architectures only the files are checked)."""
    config = read_json(folder / "config.json")
    problems: list[Problem] = []
    if not (folder / "tokenizer.json").is_file():
        mend = "save it with `AutoTokenizer.from_pretrained(model).save_pretrained(folder)`"
        problems.append(Problem("tokenizer.json is missing", str(folder), mend))
    try:
        found = {name: tensor.shape for name, tensor in folder_tensors(folder).items()}
    except RequestError as error:
        raise RequestError([*problems, *error.problems]) from error
    if ARCHITECTURES.intersection(config.get("architectures", ())) and "quantization_config" not in config:
        mend = "give the configuration that these weights were saved with"
        try:
            faults = mismatches(config, found)[:8]
        except KeyError as error:
            faults = [f"config.json has no {error.args[0]}"]
        problems += [Problem(fault, str(folder), mend) for fault in faults]
    if problems:
        raise RequestError(problems)


def _count(folder: Path, config: Mapping[str, Any]) -> int:
    tensors = {name: t for name, t in folder_tensors(folder).items() if not name.endswith(_NOT_A_WEIGHT)}
    if config.get("tie_word_embeddings"):
        tensors.pop("lm_head.weight", None)  # some checkpoints store the tied matrix twice
    return sum(tensor.size for tensor in tensors.values())


def _tied(whole: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return bool(config.get("tie_word_embeddings", whole.get("tie_word_embeddings", False)))


def _stop_tokens(folder: Path, whole: Mapping[str, Any], config: Mapping[str, Any]) -> tuple[int, ...]:
    generation = folder / "generation_config.json"
    chosen = read_json(generation).get("eos_token_id") if generation.is_file() else None
    if chosen is None:
        chosen = config.get("eos_token_id", whole.get("eos_token_id"))
    if chosen is None:
        return ()
    return tuple(chosen) if isinstance(chosen, list) else (int(chosen),)


def _first(config: Mapping[str, Any], keys: tuple[str, ...]) -> Any:
    return next((config[key] for key in keys if config.get(key) is not None), None)
