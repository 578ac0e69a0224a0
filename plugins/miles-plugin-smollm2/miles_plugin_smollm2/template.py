"""The model's own chat template, as transformers renders it: the reference that the renderer is compared with."""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from miles_core import Message


def template_ids(folder: Path, messages: Sequence[Message], *, generation: bool) -> list[int] | None:
    """Ids of the text that the template makes, special tokens parsed; None without transformers, and for calls of
    tools, which the template does not know. Raises ValueError when it refuses the conversation."""
    if find_spec("transformers") is None or any(message.get("tool_calls") for message in messages):
        return None
    tokenizer = _tokenizer(folder)
    try:
        text = tokenizer.apply_chat_template(list(messages), add_generation_prompt=generation, tokenize=False)
    except Exception as error:  # jinja's own errors, and what a template's expressions raise
        raise ValueError(f"the chat template cannot express this: {type(error).__name__}: {error}") from error
    return list(tokenizer.encode(text, add_special_tokens=False))


@lru_cache(maxsize=1)
def _tokenizer(folder: Path) -> Any:
    from transformers import PreTrainedTokenizerFast

    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"))
    config = json.loads((folder / "tokenizer_config.json").read_text(encoding="utf-8"))
    tokenizer.chat_template = config["chat_template"]
    return tokenizer
