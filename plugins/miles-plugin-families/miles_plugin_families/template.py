"""The checkpoint's own chat template, as transformers renders it: the reference that a format is compared with."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from miles_plugin_families.folder import read_json, template_of
from miles_plugin_families.tokenizer import FamilyTokenizer


def template_ids(
    folder: Path, tokenizer: FamilyTokenizer, settings: Mapping[str, Any]
) -> Callable[..., list[int]] | None:
    """(messages, tools, generation) -> ids of the text that the template makes, special tokens parsed. `settings` are
    what the template is told beside the messages. None when the folder has no template or transformers is missing."""
    template = template_of(folder)
    if template is None or find_spec("transformers") is None:
        return None
    made: list[Any] = []  # transformers is imported when the reference is first asked for

    def ids(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, generation: bool) -> list[int]:
        if not made:
            made.append(_reference(folder, template))
        try:
            text = made[0].apply_chat_template(
                messages, tools=tools, add_generation_prompt=generation, tokenize=False, **settings
            )
        except Exception as error:  # jinja's own errors, and what a template's expressions raise
            raise ValueError(f"the chat template cannot express this: {type(error).__name__}: {error}") from error
        return tokenizer.encode(text)

    return ids


def _reference(folder: Path, template: str) -> Any:
    from transformers import PreTrainedTokenizerFast

    file = folder / "tokenizer_config.json"
    config = read_json(file) if file.is_file() else {}
    named = {name: _spelling(config[name]) for name in ("bos_token", "eos_token", "pad_token") if config.get(name)}
    reference = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **named)
    reference.chat_template = template
    return reference


def _spelling(token: str | Mapping[str, Any]) -> str:
    return token if isinstance(token, str) else str(token["content"])
