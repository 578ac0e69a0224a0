"""Messages as lines of ASCII characters: a token is a character's code.

user: 1+2=\n
assistant: 3<stop>\n
"""

from collections.abc import Sequence

import numpy as np
from miles_core import BuildContext, Message, Parsed, ToolDefinition
from numpy.typing import NDArray

from miles_plugin_xyz.options import XyzOptions

STOP = 0
ROLES = ("system", "user", "assistant", "tool")


class XyzRenderer:
    """See `miles_core.Renderer`."""

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self._separator = options.separator

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        return (STOP,)

    def render(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = (), generation: bool = True
    ) -> NDArray[np.int32]:
        if tools:
            raise ValueError("this format has no tools")
        tokens = [token for message in messages for token in self._line(message)]
        if generation:
            tokens += self._codes(f"assistant{self._separator}")
        return np.array(tokens, np.int32)

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
        return np.array(self._codes(text), np.int32)

    def _line(self, message: Message) -> list[int]:
        role, content = message.get("role"), message.get("content")
        if role not in ROLES or not isinstance(content, str):
            raise ValueError(f"expected text of one of {', '.join(ROLES)}, got {message!r:.80}")
        end = [STOP] if role == "assistant" else []
        return [*self._codes(f"{role}{self._separator}{content}"), *end, ord("\n")]

    def _codes(self, text: str) -> list[int]:
        codes = [ord(character) for character in text]
        if wrong := [chr(code) for code in codes if not 0 < code < 128]:
            raise ValueError(f"only ASCII characters have a token, not {wrong[0]!r}")
        return codes
