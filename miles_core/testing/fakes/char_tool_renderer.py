"""The renderer over characters, with tools and reasoning: for tests of conversations in which the assistant calls."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence as Several
from dataclasses import replace
from typing import Any

from miles_core.contracts.model import Parsed
from miles_core.testing.fakes.char_renderer import CharRenderer
from miles_core.types.sequence import TokenArray
from miles_core.types.task import Message, ToolDefinition

_THOUGHT = re.compile(r"<think>(.*?)</think>", re.DOTALL)
_CALL = re.compile(r"<call>(\w+) (\{.*?\})</call>", re.DOTALL)


class CharToolRenderer(CharRenderer):
    """As CharRenderer; a conversation with tools begins with a line that has them as JSON. An assistant's line is

        <think>reasoning</think>content<call>NAME {"argument": "JSON"}</call>

    with any number of calls. What is no call of JSON is content, in any conversation."""

    def render(
        self, messages: Several[Message], *, tools: Several[ToolDefinition] = (), generation: bool = True
    ) -> TokenArray:
        heading = [{"role": "system", "content": json.dumps(list(tools))}] if tools else []
        return super().render([*heading, *messages], generation=generation)

    def bridge(
        self, tokens: TokenArray, messages: Several[Message], *, tools: Several[ToolDefinition] = ()
    ) -> TokenArray:
        return super().bridge(tokens, messages)

    def parse(self, tokens: TokenArray, *, tools: Several[ToolDefinition] = ()) -> Parsed:
        parsed = super().parse(tokens)
        text = str(parsed.message["content"])
        message: dict[str, Any] = {"role": "assistant"}
        if thought := _THOUGHT.match(text):
            message["reasoning_content"] = thought[1]
            text = text[thought.end() :]
        calls: list[Any] = [
            {"type": "function", "function": {"name": f[1], "arguments": f[2]}} for f in _CALL.finditer(text)
        ]
        if calls and all(_is_object(call["function"]["arguments"]) for call in calls):
            message["tool_calls"] = calls
            text = _CALL.sub("", text)
        return replace(parsed, message={**message, "content": text})

    def _line(self, message: Message) -> list[int]:
        if message.get("role") != "assistant":
            return super()._line(message)
        thought = f"<think>{message['reasoning_content']}</think>" if message.get("reasoning_content") else ""
        calls = "".join(call_text(each["function"]) for each in message.get("tool_calls") or ())
        return super()._line({"role": "assistant", "content": thought + (message.get("content") or "") + calls})


def call_text(function: Any) -> str:
    """A call as it is sampled: `function` has a name and arguments as JSON text."""
    return f"<call>{function['name']} {function['arguments']}</call>"


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
