"""Tools for SmolLM2, in a format of this plugin's own: `model: {use: smollm2, tools: json}`.

The checkpoint's chat template knows no tools and the checkpoint was trained on none, so a model has to be taught this:

    system     ...its text, a blank line, then the tools, one a line:
               # Tools
               {"name": "calculator", "description": "...", "parameters": {...}}
               To call a tool, write <tool_call>{"name": ..., "arguments": {...}}</tool_call>
    assistant  text<tool_call>{"name": "calculator", "arguments": {"expression": "2+3"}}</tool_call>
    user       <tool_response>5</tool_response>

A turn may make several calls, one after the other. Each result is a turn of the user's side, in the order in which the
results were sent. Marks are plain text: the vocabulary has no tokens for them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from typing import Any

from miles_core import Message, ToolDefinition

_CALL = re.compile(r"<tool_call>(.*?)</tool_call>", re.DOTALL)
_ARGUMENTS = re.compile(r'\s*\{\s*"name"\s*:\s*"[^"\\]*"\s*,\s*"arguments"\s*:\s*(\{.*\})\s*\}\s*', re.DOTALL)


def system_text(tools: Sequence[ToolDefinition]) -> str:
    """What the system message says of the tools. Raises ValueError for what is not a function with a name."""
    lines = [json.dumps(_function(tool), ensure_ascii=False) for tool in tools]
    how = 'To call a tool, write <tool_call>{"name": ..., "arguments": {...}}</tool_call>'
    return "\n".join(["# Tools", *lines, how])


def call_text(call: Any) -> str:
    """One call of an assistant's message. Its arguments stand as they are written."""
    function = call["function"]
    name = json.dumps(function["name"], ensure_ascii=False)
    return f'<tool_call>{{"name": {name}, "arguments": {function["arguments"] or "{}"}}}</tool_call>'


def result_text(content: str) -> str:
    return f"<tool_response>{content}</tool_response>"


def read_reply(text: str) -> Message:
    """The assistant's message that a sampled text says. What is no JSON of the right shape stays text."""
    calls: list[dict[str, Any]] = []
    rest, end = [], 0
    for found in _CALL.finditer(text):
        function = _read_call(found[1])
        if function is not None:
            calls.append({"type": "function", "function": function})
            rest.append(text[end : found.start()])
            end = found.end()
    rest.append(text[end:])
    if not calls:
        return {"role": "assistant", "content": text}
    content = "".join(piece for piece in rest if piece.strip())  # white space between calls says nothing
    return {"role": "assistant", "content": content, "tool_calls": calls}


def _function(tool: ToolDefinition) -> dict[str, Any]:
    function = tool.get("function")
    if tool.get("type") != "function" or not isinstance(function, dict) or not function.get("name"):
        raise ValueError(f"SmolLM2 can be given tools of the type `function` only, got {tool!r:.80}")
    return {key: function[key] for key in ("name", "description", "parameters") if function.get(key)}


def _read_call(text: str) -> dict[str, str] | None:
    try:
        call = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return None
    arguments = call.get("arguments") if isinstance(call, dict) else None
    if not isinstance(arguments, dict) or not isinstance(call.get("name"), str) or not call["name"]:
        return None
    written = _ARGUMENTS.fullmatch(text) if set(call) == {"name", "arguments"} else None
    return {"name": call["name"], "arguments": _spelled(written, arguments)}


def _spelled(written: re.Match[str] | None, arguments: dict[str, Any]) -> str:
    """As the model spelled them, where they can be told apart: not where a key stands twice."""
    if written is not None:
        try:
            if json.loads(written[1]) == arguments:
                return written[1]
        except ValueError:
            pass
    return json.dumps(arguments, ensure_ascii=False)


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")
