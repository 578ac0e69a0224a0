"""A renderer over characters: a token is an ASCII code, and a conversation is lines of text."""

from __future__ import annotations

from collections.abc import Sequence as Several

import numpy as np

from miles_core.contracts.model import Parsed
from miles_core.types.sequence import TokenArray
from miles_core.types.task import Message, ToolDefinition

STOP = 0
VOCABULARY = 128
ROLES = ("system", "user", "assistant", "tool")


class CharRenderer:
    """`contracts.model.Renderer` without a model. Each message is its text and a newline; a message of the assistant
    has the stop token (0) before its newline. What was rendered is a prefix of what is rendered when the conversation
    goes on. Roles leave no other trace. It knows no tools."""

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        return (STOP,)

    def render(
        self, messages: Several[Message], *, tools: Several[ToolDefinition] = (), generation: bool = True
    ) -> TokenArray:
        """See `Renderer.render`; the assistant speaks at the start of a line, so `generation` adds nothing."""
        _refuse(tools)
        return _array([code for message in messages for code in self._line(message)])

    def bridge(
        self, tokens: TokenArray, messages: Several[Message], *, tools: Several[ToolDefinition] = ()
    ) -> TokenArray:
        """See `Renderer.bridge`; ends the assistant's turn first when it was cut before its stop token."""
        ended = len(tokens) > 0 and int(tokens[-1]) == STOP
        return _array([*([] if ended else [STOP]), ord("\n"), *self.render(messages, tools=tools).tolist()])

    def parse(self, tokens: TokenArray, *, tools: Several[ToolDefinition] = ()) -> Parsed:
        ends = np.flatnonzero(tokens == STOP)
        said = tokens[: ends[0]] if len(ends) else tokens
        return Parsed({"role": "assistant", "content": self.decode(said)}, complete=bool(len(ends)))

    def decode(self, tokens: TokenArray) -> str:
        return "".join(chr(token) for token in tokens.tolist())

    def encode(self, text: str) -> TokenArray:
        """Raises ValueError for what is not an ASCII character, and for the stop token's own code."""
        codes = [ord(character) for character in text]
        if wrong := [chr(code) for code in codes if not 0 < code < VOCABULARY]:
            raise ValueError(f"only ASCII characters have a token, not {wrong[0]!r}")
        return _array(codes)

    def _line(self, message: Message) -> list[int]:
        role, content = message.get("role"), message.get("content")
        if role not in ROLES:
            raise ValueError(f"there is no role {role!r}, expected one of {', '.join(ROLES)}")
        if not isinstance(content, str) or message.get("tool_calls"):
            raise ValueError(f"only plain text has tokens, got a {role} message {message!r:.80}")
        end = [STOP] if role == "assistant" else []
        return [*self.encode(content).tolist(), *end, ord("\n")]


def _refuse(tools: Several[ToolDefinition]) -> None:
    if tools:
        raise ValueError("this format has no tools")


def _array(codes: list[int]) -> TokenArray:
    return np.array(codes, np.int32)
