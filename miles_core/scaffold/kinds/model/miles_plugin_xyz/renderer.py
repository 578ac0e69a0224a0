"""The family's renderer: a token is a character's code, a message is a line, a stop token ends the assistant's."""

from collections.abc import Sequence

import numpy as np
from miles_core import Message, Parsed, ToolDefinition
from numpy.typing import NDArray

ROLES = ("system", "user", "assistant", "tool")
STOP = 0
VOCABULARY = 128


class AsciiRenderer:
    """See `miles_core.Renderer`."""

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        return (STOP,)

    def render(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = (), generation: bool = True
    ) -> NDArray[np.int32]:
        """The assistant speaks at the start of a line, so `generation` adds nothing."""
        if tools:
            raise ValueError("this format has no tools")
        return np.array([token for message in messages for token in self._line(message)], np.int32)

    def bridge(
        self, tokens: NDArray[np.int32], messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> NDArray[np.int32]:
        """A turn that was cut before its stop token gets one, which nobody sampled."""
        ended = len(tokens) > 0 and int(tokens[-1]) == STOP
        head = [ord("\n")] if ended else [STOP, ord("\n")]
        return np.array([*head, *self.render(messages, tools=tools).tolist()], np.int32)

    def parse(self, tokens: NDArray[np.int32], *, tools: Sequence[ToolDefinition] = ()) -> Parsed:
        (ends,) = np.nonzero(tokens == STOP)
        said = tokens[: ends[0]] if len(ends) else tokens
        return Parsed({"role": "assistant", "content": self.decode(said)}, complete=bool(len(ends)))

    def decode(self, tokens: NDArray[np.int32]) -> str:
        return "".join(chr(token) for token in tokens.tolist())

    def encode(self, text: str) -> NDArray[np.int32]:
        codes = [ord(character) for character in text]
        if wrong := [chr(code) for code in codes if not 0 < code < VOCABULARY]:
            raise ValueError(f"only ASCII characters have a token, not {wrong[0]!r}")
        return np.array(codes, np.int32)

    def _line(self, message: Message) -> list[int]:
        role, content = message.get("role"), message.get("content")
        if role not in ROLES or not isinstance(content, str):
            raise ValueError(f"expected text of one of {', '.join(ROLES)}, got {message!r:.80}")
        end = [STOP] if role == "assistant" else []
        return [*self.encode(content).tolist(), *end, ord("\n")]
