"""The chat format of models from scratch.

    <bos> prompt <sep> answer <eos> prompt <sep> ...

A message of the assistant ends with <eos>, one of anybody else with <sep>, after which the assistant speaks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from miles_core import Message, Parsed, ToolDefinition
from miles_plugin_huggingface.options import BOS, EOS, ROLES, SEPARATOR, SPECIAL

TokenArray = npt.NDArray[np.int32]


class ScratchRenderer:
    """One token for each of `characters`, numbered from len(SPECIAL)."""

    def __init__(self, characters: str) -> None:
        self._ids = {character: id for id, character in enumerate(characters, start=len(SPECIAL))}
        self._texts = [*SPECIAL, *characters]

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        return (EOS,)

    def render(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = (), generation: bool = True
    ) -> TokenArray:
        """As Renderer.render; the last message already ends where the assistant speaks, so `generation` adds nothing.
        Raises ValueError for a character that has no token."""
        _refuse(tools)
        return np.asarray([BOS, *self._turns(messages)], dtype=np.int32)

    def bridge(
        self, tokens: TokenArray, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> TokenArray:
        _refuse(tools)
        ended = len(tokens) > 0 and int(tokens[-1]) == EOS
        return np.asarray([*([] if ended else [EOS]), *self._turns(messages)], dtype=np.int32)

    def parse(self, tokens: TokenArray, *, tools: Sequence[ToolDefinition] = ()) -> Parsed:
        """The text before the first <eos>, without special tokens."""
        ends = np.flatnonzero(tokens == EOS)
        said = tokens[: ends[0]] if len(ends) else tokens
        text = self.decode(said[said >= len(SPECIAL)])
        return Parsed({"role": "assistant", "content": text}, complete=bool(len(ends)))

    def decode(self, tokens: TokenArray) -> str:
        return "".join(self._texts[id] for id in tokens.tolist())

    def encode(self, text: str) -> TokenArray:
        """Raises ValueError for a character that has no token."""
        if unknown := sorted({character for character in text if character not in self._ids}):
            raise ValueError(f"no token for {''.join(unknown)!r}: add it to the model's `characters`")
        return np.asarray([self._ids[character] for character in text], dtype=np.int32)

    def _turns(self, messages: Sequence[Message]) -> list[int]:
        ids: list[int] = []
        for message in messages:
            role, content = message.get("role"), message.get("content")
            if role not in ROLES:
                raise ValueError(f"there is no role {role!r}, expected one of {', '.join(ROLES)}")
            if not isinstance(content, str) or message.get("tool_calls"):
                raise ValueError("a model from scratch reads messages of plain text only")
            ids += [*self.encode(content).tolist(), EOS if role == "assistant" else SEPARATOR]
        return ids


def _refuse(tools: Sequence[ToolDefinition]) -> None:
    if tools:
        raise ValueError("a model from scratch has no words for tools")
