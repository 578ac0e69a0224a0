"""Generated conversations. The same seed gives the same ones on every machine."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from miles_core.types.task import Message, ToolDefinition

TEXTS = (
    "4", "2+2=", "Hello, world!", "a\n\nb", "ends with a line\n", "  two spaces", "tab\there", "#hash {x} <y> & \"z\"",
    "é ü ß", "漢字かな", "Привет", "🙂👩‍🚀", "العربية", "a\\nb", "{\"x\": [1, 2]}", "x" * 60, "",
)  # fmt: skip
REASONS = ("why", "because 2+2 is 4", "first\n\nthen", "漢字", "so: {1}")
TOOLS: tuple[ToolDefinition, ...] = (
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Adds two numbers.",
            "parameters": {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["a", "b"],
            },
        },
    },
    {
        "type": "function",
        "function": {
            "name": "find",
            "description": "Finds a text. 🙂",
            "parameters": {
                "type": "object",
                "properties": {"text": {"type": "string", "description": "what"}, "exact": {"type": "boolean"}},
                "required": ["text"],
            },
        },
    },
)


@dataclass(frozen=True, slots=True)
class Said:
    """A conversation that ends where the assistant speaks next. `about` are words for what is in it."""

    messages: tuple[Message, ...]
    tools: tuple[ToolDefinition, ...]
    about: tuple[str, ...]


def conversations(count: int, seed: int = 0) -> Iterator[Said]:
    """With and without each of: a system message, tools, parallel calls, reasoning, empty and unusual texts."""
    for number in range(count):
        yield _conversation(random.Random(f"{seed}/{number}"))


def _conversation(rng: random.Random) -> Said:
    tools = TOOLS if rng.random() < 0.5 else ()
    reasons = rng.random() < 0.4
    messages: list[Message] = []
    about = ["tools"] if tools else []
    if rng.random() < 0.5:
        messages.append({"role": "system", "content": _text(rng)})
        about.append("system")
    calls = 0
    for _ in range(rng.randint(1, 4)):
        messages.append({"role": "user", "content": _text(rng)})
        while tools and rng.random() < 0.5:
            count = rng.choice((1, 1, 2, 3))
            message, calls = _calling(rng, calls, count)
            messages += [_thinking(rng, message, reasons), *_answers(rng, message)]
            about.append("parallel calls" if count > 1 else "calls")
        messages.append(_thinking(rng, {"role": "assistant", "content": _text(rng)}, reasons))
    messages.pop() if messages[-1]["role"] == "assistant" else None
    about += ["reasoning"] if any("reasoning_content" in message for message in messages) else []
    about += ["empty"] if any(message["content"] == "" and "tool_calls" not in message for message in messages) else []
    return Said(tuple(messages), tools, tuple(dict.fromkeys(about)))


def _calling(rng: random.Random, start: int, count: int) -> tuple[Message, int]:
    made = []
    for number in range(start, start + count):
        arguments: dict[str, object]
        if rng.random() < 0.5:
            name, arguments = "add", {"a": rng.randint(-9, 99), "b": rng.randint(0, 9)}
        else:
            name, arguments = "find", {"text": _text(rng), **({"exact": True} if rng.random() < 0.3 else {})}
        function = {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)}
        made.append({"id": f"functions.{name}:{number}", "type": "function", "function": function})
    content = rng.choice(("", "", "Let me see."))
    return {"role": "assistant", "content": content, "tool_calls": made}, start + count


def _answers(rng: random.Random, message: Message) -> Sequence[Message]:
    return [{"role": "tool", "content": _text(rng), "tool_call_id": call["id"]} for call in message["tool_calls"]]


def _thinking(rng: random.Random, message: Message, reasons: bool) -> Message:
    if not reasons or rng.random() < 0.2:
        return message
    return {**message, "reasoning_content": rng.choice(REASONS)}


def _text(rng: random.Random) -> str:
    return rng.choice(TEXTS)
