"""A checkpoint's directory: its card, and whether it is the family's."""

from __future__ import annotations

import json
import struct
from math import prod
from pathlib import Path
from typing import Any

from miles_core import ModelCard, Problem, RequestError
from miles_plugin_families.catalog import FAMILIES, REGISTER, Family

_EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object. Raises RequestError when the file is missing or is something else."""
    try:
        data = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise RequestError(f"{file.name} is missing", where=str(file.parent), mend="give a whole checkpoint") from error
    except (OSError, ValueError) as error:
        raise RequestError(f"the file cannot be read as JSON: {error}", where=str(file)) from error
    if not isinstance(data, dict):
        raise RequestError(f"expected a JSON object, found {type(data).__name__}", where=str(file))
    return data


def read_card(folder: Path, context: int | None) -> ModelCard:
    """From config.json and the headers of the weights. Its stop tokens are the renderer's to say. Raises RequestError
    that names file and key."""
    whole = read_json(folder / "config.json")
    config: dict[str, Any] = whole.get("text_config") or whole
    needed = ("hidden_size", "num_hidden_layers", "vocab_size", "max_position_embeddings")
    missing = [key for key in needed if key not in config] + ([] if whole.get("architectures") else ["architectures"])
    if missing:
        raise RequestError(f"config.json has no {', '.join(missing)}", where=str(folder / "config.json"))
    longest = int(config["max_position_embeddings"])
    if context is not None and context > longest:
        raise RequestError(f"context {context} is longer than the model's own {longest}", where="model.context")
    return ModelCard(
        name=folder.resolve().name,
        architecture=whole["architectures"][0],
        context=context or longest,
        vocabulary=config["vocab_size"],
        hidden=config["hidden_size"],
        layers=config["num_hidden_layers"],
        parameters=_parameters(folder, config),
        stop_tokens=(),
        experts=next((config[key] for key in _EXPERTS if config.get(key)), 0),
        tied_embeddings=bool(config.get("tie_word_embeddings", whole.get("tie_word_embeddings", False))),
    )


def check_family(family: Family, folder: Path) -> None:
    """Nothing is detected: the recipe says the family, and a checkpoint that says another is refused, with the families
    that there are. Raises RequestError, also when tokenizer.json is missing."""
    kind = read_json(folder / "config.json").get("model_type")
    problems = []
    if kind not in family.model_types:
        theirs = [each.name for each in FAMILIES.values() if kind in each.model_types]
        problems.append(
            Problem(
                f"the checkpoint is of type {kind!r}, and family {family.name} is for {', '.join(family.model_types)}",
                str(folder / "config.json"),
                f"say `use: {' or '.join(theirs)}`" if theirs else f"families: {', '.join(FAMILIES)}; {REGISTER}",
            )
        )
    if not (folder / "tokenizer.json").is_file():
        mend = "save it with `AutoTokenizer.from_pretrained(folder).save_pretrained(folder)`"
        problems.append(Problem("tokenizer.json is missing", str(folder), mend))
    if problems:
        raise RequestError(problems)


def template_of(folder: Path) -> str | None:
    """The checkpoint's own chat template; None when it has none."""
    file = folder / "chat_template.jinja"
    if file.is_file():
        return file.read_text(encoding="utf-8")
    config = folder / "tokenizer_config.json"
    template = read_json(config).get("chat_template") if config.is_file() else None
    if isinstance(template, list):  # several, by name
        return next((str(one["template"]) for one in template if one["name"] == "default"), None)
    return None if template is None else str(template)


def _parameters(folder: Path, config: dict[str, Any]) -> int:
    """Numbers in the weights' headers; a tied output layer that is stored beside the embedding counts once."""
    sizes: dict[str, int] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(length))
        sizes |= {name: prod(tensor["shape"]) for name, tensor in header.items() if name != "__metadata__"}
    if not sizes:
        raise RequestError("there are no *.safetensors", where=str(folder), mend="give a whole checkpoint")
    if config.get("tie_word_embeddings"):
        sizes.pop("lm_head.weight", None)
    return sum(sizes.values())
