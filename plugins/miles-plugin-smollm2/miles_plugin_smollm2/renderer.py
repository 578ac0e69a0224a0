"""SmolLM2's chat format, token by token.

    <|im_start|>role
    text<|im_end|>
    <|im_start|>assistant

The marks are inserted as ids and only the text between them is tokenized, so a text that spells a mark stays text.
The format is append-only: what was rendered is a prefix of what is rendered when the conversation goes on.
`tool_format` adds tools, where they are wanted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
from tokenizers import Tokenizer

from miles_core import Message, Parsed, ToolDefinition
from miles_plugin_smollm2.facts import END, START
from miles_plugin_smollm2.options import DEFAULT_SYSTEM
from miles_plugin_smollm2.template import template_ids
from miles_plugin_smollm2.tool_format import call_text, read_reply, result_text, system_text

TokenArray = npt.NDArray[np.int32]

_ROLES = ("system", "user", "assistant", "tool")


class SmolLM2Renderer:
    """Renderer of a converted folder. `system` precedes conversations that bring no system message (empty: nothing).
    Without `tools` a conversation that has any is refused."""

    def __init__(self, folder: Path, system: str, *, tools: bool = False) -> None:
        self._folder = folder
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.encode_special_tokens = True  # "<|im_end|>" inside a text is tokenized as text
        self._system = system
        self._knows_tools = tools
        self._newline = self._ids("\n")
        self._generation = [START, *self._ids("assistant\n")]

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        return (END,)

    def render(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = (), generation: bool = True
    ) -> TokenArray:
        """As Renderer.render; the empty conversation is the default system message."""
        self._check(tools)
        has_system = bool(messages) and messages[0].get("role") == "system"
        own = _text(messages[0]) if has_system else self._system
        said = "\n\n".join(part for part in (own, system_text(tools) if tools else "") if part)
        ids = self._turn("system", said) if said or has_system else []
        return _array(ids + self._turns(messages[has_system:], tools=bool(tools), generation=generation))

    def bridge(
        self, tokens: TokenArray, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> TokenArray:
        """As Renderer.bridge; closes the turn first when it was cut before its `<|im_end|>`."""
        self._check(tools)
        ended = len(tokens) > 0 and int(tokens[-1]) == END
        return _array(
            ([] if ended else [END]) + self._newline + self._turns(messages, tools=bool(tools), generation=True)
        )

    def parse(self, tokens: TokenArray, *, tools: Sequence[ToolDefinition] = ()) -> Parsed:
        """The text before the first `<|im_end|>`, without special tokens; complete when there is one."""
        ends = np.flatnonzero(tokens == END)
        said = (tokens[: ends[0]] if len(ends) else tokens).tolist()
        text = str(self._tokenizer.decode(said, skip_special_tokens=True))
        message = read_reply(text) if tools else {"role": "assistant", "content": text}
        return Parsed(message, complete=bool(len(ends)))

    def decode(self, tokens: TokenArray) -> str:
        return str(self._tokenizer.decode(tokens.tolist(), skip_special_tokens=False))

    def encode(self, text: str) -> TokenArray:
        return _array(self._ids(text))

    def template_tokens(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = (), generation: bool = True
    ) -> TokenArray | None:
        """As TemplateReference.template_tokens: the template has a default system message of its own, and no tools."""
        if tools or self._system != DEFAULT_SYSTEM:
            return None
        ids = template_ids(self._folder, messages, generation=generation)
        return None if ids is None else _array(ids)

    def _turns(self, messages: Sequence[Message], *, tools: bool, generation: bool) -> list[int]:
        ids: list[int] = []
        for message in messages:
            role, text = _role(message), _text(message, tools=tools)
            ids += self._turn("user", result_text(text)) if tools and role == "tool" else self._turn(role, text)
        return ids + self._generation if generation else ids

    def _turn(self, role: str, text: str) -> list[int]:
        return [START, *self._ids(f"{role}\n{text}"), END, *self._newline]

    def _check(self, tools: Sequence[ToolDefinition]) -> None:
        if tools and not self._knows_tools:
            raise ValueError("SmolLM2's chat format has no tools: say `tools: json` beside `use: smollm2`")

    def _ids(self, text: str) -> list[int]:
        return list(self._tokenizer.encode(text, add_special_tokens=False).ids)


def _role(message: Message) -> str:
    role = message.get("role")
    if role not in _ROLES:
        raise ValueError(f"SmolLM2 has no role {role!r}, expected one of {', '.join(_ROLES)}")
    return str(role)


def _text(message: Message, *, tools: bool = False) -> str:
    calls = message.get("tool_calls") or ()
    if calls and not tools:
        raise ValueError("SmolLM2's chat format has no tool calls in a conversation without tools")
    content = message.get("content")
    if calls:
        return _text({"content": content or ""}) + "".join(call_text(call) for call in calls)
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) and part.get("type") == "text" for part in content):
        return "".join(str(part["text"]) for part in content)
    raise ValueError(f"SmolLM2 reads text only, got content {content!r:.80}")


def _array(ids: list[int]) -> TokenArray:
    return np.asarray(ids, dtype=np.int32)
