"""Rendering for a model without a chat format: the contents of the messages, each followed by a line end."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from miles_core import Message, Parsed, ToolDefinition
from miles_plugin_huggingface.options import ROLES
from miles_plugin_huggingface.text_tokens import text_ids

TokenArray = npt.NDArray[np.int32]


class PlainRenderer:
    """Roles leave no trace. The conversation begins with what the tokenizer puts before a text (often a bos token)."""

    def __init__(self, tokenizer: Tokenizer, stop_tokens: tuple[int, ...]) -> None:
        self._tokenizer = tokenizer
        self._stop_tokens = stop_tokens
        marked = tokenizer.encode("a", add_special_tokens=True)
        self._beginning = [id for id, special in zip(marked.ids, marked.special_tokens_mask, strict=True) if special][
            : int(np.argmin(marked.special_tokens_mask))
        ]

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        return self._stop_tokens

    def render(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = (), generation: bool = True
    ) -> TokenArray:
        _refuse(tools)
        return np.asarray([*self._beginning, *self._lines(messages)], dtype=np.int32)

    def bridge(
        self, tokens: TokenArray, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> TokenArray:
        _refuse(tools)
        return np.asarray([*self.encode("\n"), *self._lines(messages)], dtype=np.int32)

    def parse(self, tokens: TokenArray, *, tools: Sequence[ToolDefinition] = ()) -> Parsed:
        ends = np.flatnonzero(np.isin(tokens, self._stop_tokens))
        text = tokens[: ends[0]] if len(ends) else tokens
        content = str(self._tokenizer.decode(text.tolist(), skip_special_tokens=True))
        return Parsed({"role": "assistant", "content": content}, complete=bool(len(ends)))

    def decode(self, tokens: TokenArray) -> str:
        return str(self._tokenizer.decode(tokens.tolist(), skip_special_tokens=False))

    def encode(self, text: str) -> TokenArray:
        return np.asarray(text_ids(self._tokenizer, text), dtype=np.int32)

    def _lines(self, messages: Sequence[Message]) -> list[int]:
        """Each message is tokenized alone, so that a longer conversation begins with the tokens of a shorter one."""
        return [int(id) for message in messages for id in self.encode(f"{_content(message)}\n")]


def _content(message: Message) -> str:
    role, content = message.get("role"), message.get("content")
    if role not in ROLES:
        raise ValueError(f"there is no role {role!r}, expected one of {', '.join(ROLES)}")
    if not isinstance(content, str) or message.get("tool_calls"):
        raise ValueError("a model without a chat template reads messages of plain text only")
    return content


def _refuse(tools: Sequence[ToolDefinition]) -> None:
    if tools:
        raise ValueError("a model without a chat template has no words for tools")
