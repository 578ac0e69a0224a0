"""What a client sends, in one normal form: the fields that a renderer may read, and nothing else.

`developer` becomes `system`. A list of one text part becomes its text. Images are `data:` URLs (images.py). Fields that
are empty (absent, null, "", []) are left out, but for `content`, which becomes "". Every other key (`refusal`,
`annotations`, token ids that a harness echoes, `index` of a tool call) is dropped here, so that it can neither break a
match nor reach a template. Arguments of tool calls are JSON text.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from miles_core.session.body import DEPTH, check_value
from miles_core.session.faults import bad_request
from miles_core.session.images import normal_part
from miles_core.types.task import Message

ROLE_OF = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}


def read_messages(given: Any) -> tuple[Message, ...]:
    """The normal form of a request's messages. Raises SessionFault (400) that names the message: no list, unknown
    role, content of another type, a tool result without its call, nothing to answer."""
    if not isinstance(given, list) or not given:
        raise bad_request("`messages` must be a list of one message or more")
    messages = tuple(_message(place, message) for place, message in enumerate(given))
    _check_tool_results(messages)
    if messages[-1]["role"] == "assistant":
        raise bad_request(
            "the last message is the assistant's own: there is nothing to answer", code="nothing_to_answer"
        )
    return messages


def normal(message: Mapping[str, Any]) -> Message:
    """The normal form of one message whose role is known. Raises ValueError that says what is wrong with it."""
    found: dict[str, Any] = {"role": ROLE_OF[message["role"]], "content": _content(message.get("content"))}
    if found["role"] == "assistant":
        if reasoning := message.get("reasoning_content") or message.get("reasoning"):
            found["reasoning_content"] = _text("reasoning_content", reasoning)
        if calls := message.get("tool_calls"):
            found["tool_calls"] = _tool_calls(calls)
        return found
    for key in ("name", "tool_call_id"):
        if value := message.get(key):
            found[key] = _text(key, value)
    return found


def _message(place: int, message: Any) -> Message:
    if not isinstance(message, dict):
        raise bad_request(f"message {place} is {_kind(message)}, expected an object")
    role, content = message.get("role"), message.get("content")
    if len(message) == 2 and type(content) is type(role) is str and role in ROLE_OF:  # most messages of most histories
        return {"role": ROLE_OF[role], "content": content}
    if not isinstance(role, str) or role not in ROLE_OF:
        raise bad_request(
            f"message {place} has the role {role!r:.40}", code="unknown_role", mend=f"one of {', '.join(ROLE_OF)}"
        )
    try:
        return normal(message)
    except ValueError as error:
        raise bad_request(f"message {place} ({role}): {error}") from None


def _content(content: Any) -> Any:
    if content is None or content == []:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list) or not all(
        isinstance(part, dict) and isinstance(part.get("type"), str) for part in content
    ):
        raise ValueError(f"`content` is {_kind(content)}, expected text, null or a list of parts with a `type`")
    for part in content:
        if part["type"] == "text" and not isinstance(part.get("text"), str):
            raise ValueError(f"the `text` of a part is {_kind(part.get('text'))}, expected text")
    if len(content) == 1 and content[0]["type"] == "text":
        return content[0]["text"]
    return [normal_part(part) for part in content]


def _tool_calls(calls: Any) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise ValueError(f"`tool_calls` is {_kind(calls)}, expected a list")
    return [_tool_call(call) for call in calls]


def _tool_call(call: Any) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise ValueError("a tool call needs `function: {name, arguments}`")
    arguments = function.get("arguments")
    if not isinstance(arguments, str | dict):
        raise ValueError(f"the arguments of tool call {function['name']!r} are {_kind(arguments)}, expected JSON text")
    text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    _check_depth(text, function["name"])
    made = {"type": "function", "function": {"name": function["name"], "arguments": text}}
    return {"id": _text("id", call["id"]), **made} if call.get("id") else made


def _check_depth(arguments: str, name: str) -> None:
    """Renderers read arguments as JSON. Text that is none is theirs to judge."""
    if arguments.count("{") + arguments.count("[") <= DEPTH:
        return
    try:
        check_value(json.loads(arguments))
    except RecursionError:
        raise ValueError(f"the arguments of tool call {name!r:.60} have more than {DEPTH} levels") from None
    except json.JSONDecodeError:
        return
    except ValueError as error:
        raise ValueError(f"the arguments of tool call {name!r:.60}: {error}") from None


def _check_tool_results(messages: tuple[Message, ...]) -> None:
    """A tool's answer needs the assistant's call that it answers."""
    called: set[str | None] = set()
    for place, message in enumerate(messages):
        if message["role"] == "assistant" and "tool_calls" in message:
            called |= {call.get("id") for call in message["tool_calls"]}
        elif message["role"] == "tool" and not (
            message["tool_call_id"] in called if "tool_call_id" in message else called
        ):
            named = f" to call {message['tool_call_id']!r:.60}" if "tool_call_id" in message else ""
            raise bad_request(
                f"message {place} is a tool's answer{named}, and no assistant message before it makes that call",
                code="tool_result_without_call",
            )


def _text(key: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"`{key}` is {_kind(value)}, expected text")
    return value


def _kind(value: Any) -> str:
    return "null" if value is None else type(value).__name__
