"""The checkpoint's own chat template, as transformers renders it: the reference that a format is compared with."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from miles_plugin_families.catalog import Family
from miles_plugin_families.folder import read_json, template_of
from miles_plugin_families.tokenizer import FamilyTokenizer


def template_ids(
    family: Family, folder: Path, tokenizer: FamilyTokenizer, settings: Mapping[str, Any]
) -> Callable[..., list[int]] | None:
    """(messages, tools, generation) -> ids of the text that the template makes, special tokens parsed. `settings` are
    what the template is told beside the messages. None when there is no template, or transformers is missing.

    A practice model has no template of its own; the package trl holds copies of those of many checkpoints.
    """
    template = template_of(folder) or _packaged(family.template)
    if template is None or find_spec("transformers") is None:
        return None
    if date := settings.get("conversation_start_date"):  # the template would ask the clock
        template = re.sub(r"strftime_now\([^)]*\)", lambda _: repr(date), template)
    made: list[Any] = []  # transformers is imported when the reference is first asked for

    def ids(messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None, generation: bool) -> list[int]:
        if not made:
            made.append(_reference(folder, template, family.bos))
        if family.renderer == "gpt-oss":
            messages = [_as_thinking(message) for message in messages]
        try:
            text = made[0].apply_chat_template(
                messages, tools=tools, add_generation_prompt=generation, tokenize=False, **settings
            )
        except Exception as error:  # jinja's own errors, and what a template's expressions raise
            raise ValueError(f"the chat template cannot express this: {type(error).__name__}: {error}") from error
        return tokenizer.encode(text)

    return ids


def _as_thinking(message: dict[str, Any]) -> dict[str, Any]:
    """gpt-oss's template has a name of its own for reasoning."""
    return {"thinking" if key == "reasoning_content" else key: value for key, value in message.items()}


def _reference(folder: Path, template: str, bos: str) -> Any:
    from transformers import PreTrainedTokenizerFast

    file = folder / "tokenizer_config.json"
    config = read_json(file) if file.is_file() else {}
    named = {name: _spelling(config[name]) for name in ("bos_token", "eos_token", "pad_token") if config.get(name)}
    if bos:
        named.setdefault("bos_token", bos)
    reference = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), **named)
    reference.chat_template = template
    return reference


def _packaged(name: str) -> str | None:
    """The template of this name in trl, which is not imported; None when it is not installed or has none."""
    spec = find_spec("trl") if name else None
    if spec is None or not spec.submodule_search_locations:
        return None
    file = Path(spec.submodule_search_locations[0]) / "chat_templates" / f"{name}.jinja"
    return file.read_text(encoding="utf-8") if file.is_file() else None


def _spelling(token: str | Mapping[str, Any]) -> str:
    return token if isinstance(token, str) else str(token["content"])
