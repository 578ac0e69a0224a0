"""Messages as the library takes them, and the assistant's message as Miles has it."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from miles_core import Message

ROLES = ("system", "user", "assistant", "tool")
_NATIVE_ID = re.compile(r"functions\.[^:]+:\d+")
Literal = Callable[[str], str]
Picture = Callable[[Mapping[str, Any]], dict[str, Any]]
_SEE = ("user", "tool")


def to_library(messages: Sequence[Message], literal: Literal, picture: Picture | None = None) -> list[dict[str, Any]]:
    """Messages with texts as contents and tool calls' arguments as values. `literal` is applied to every text, and
    `picture` to the image parts of users and tools: None where images cannot be expressed.

    Raises ValueError for a role, a part or a call that is none.
    """
    return [_message(message, literal, picture) for message in messages]


def tools_to_library(tools: Sequence[Mapping[str, Any]], literal: Literal) -> list[dict[str, Any]] | None:
    """None for no tools. Raises ValueError for what is no definition of a function."""
    for tool in tools:
        function = tool.get("function") if isinstance(tool, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            raise ValueError(f"a tool is {{type: function, function: {{name, ...}}}}, got {tool!r:.80}")
    return [_texts(dict(tool), literal) for tool in tools] or None


def tool_names(messages: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """Name of the function that each call's id calls."""
    calls = (call for message in messages for call in message.get("tool_calls", ()))
    return {call["id"]: call["function"]["name"] for call in calls if call.get("id")}


def number_calls(messages: list[dict[str, Any]]) -> None:
    """Give every call the id that Kimi's format writes in place of its function's name, `functions.NAME:NUMBER`, and
    its answers the same."""
    ids: dict[str, str] = {}
    calls = (call for message in messages for call in message.get("tool_calls", ()))
    for number, call in enumerate(calls):
        if not _NATIVE_ID.fullmatch(given := call.get("id", "")):
            call["id"] = f"functions.{call['function']['name']}:{number}"
            ids |= {given: call["id"]} if given else {}
    for message in messages:
        if message.get("tool_call_id") in ids:
            message["tool_call_id"] = ids[message["tool_call_id"]]


def is_native(answer: Mapping[str, Any]) -> bool:
    """Whether a tool's answer carries an id of the form that `number_calls` writes."""
    return _NATIVE_ID.fullmatch(answer.get("tool_call_id", "")) is not None


def number_answers(answers: Sequence[dict[str, Any]], calls: Sequence[Mapping[str, Any]]) -> None:
    """Give answers with other ids those of the calls, in order, when there are as many of them."""
    if len(answers) == len(calls):
        for answer, call in zip(answers, calls, strict=True):
            if not is_native(answer) and call.get("id"):
                answer["tool_call_id"] = call["id"]


def _message(message: Message, literal: Literal, picture: Picture | None) -> dict[str, Any]:
    role = message.get("role")
    if role not in ROLES:
        raise ValueError(f"there is no role {role!r}, expected one of {', '.join(ROLES)}")
    calls = message.get("tool_calls") or ()
    content = message.get("content")
    if picture is not None and role in _SEE and _has_image(content):
        made: dict[str, Any] = {"role": role, "content": _parts(content, literal, picture)}
    else:
        made = {"role": role, "content": literal(_text(content, bool(calls)))}
    if calls and role != "assistant":
        raise ValueError(f"a message of {role} has tool calls")
    if reasoning := message.get("reasoning_content"):
        made["reasoning_content"] = literal(str(reasoning))
    if calls:
        made["tool_calls"] = [_call(call, literal) for call in calls]
    made |= {key: message[key] for key in ("name", "tool_call_id") if message.get(key)}
    return made


def _has_image(content: Any) -> bool:
    return isinstance(content, list | tuple) and any(
        isinstance(part, Mapping) and part.get("type") == "image_url" for part in content
    )


def _parts(content: Sequence[Any], literal: Literal, picture: Picture) -> list[dict[str, Any]]:
    """Images as `picture` gives them, each run of texts between them as one."""
    made: list[dict[str, Any]] = []
    for part in content:
        if isinstance(part, Mapping) and part.get("type") == "image_url":
            made.append(picture(part))
        elif made and made[-1].get("type") == "text":
            made[-1]["text"] += literal(_text([part], False))
        else:
            made.append({"type": "text", "text": literal(_text([part], False))})
    return made


def _text(content: Any, may_be_absent: bool) -> str:
    if content is None and may_be_absent:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list | tuple):
        if all(isinstance(part, Mapping) and part.get("type") == "text" for part in content):
            return "".join(str(part["text"]) for part in content)
        kinds = sorted({str(part.get("type")) if isinstance(part, Mapping) else repr(part) for part in content})
        raise ValueError(f"only parts of type text can be expressed, got {', '.join(kinds)}")
    raise ValueError(f"content is text or a list of parts, got {content!r:.80}")


def _call(call: Mapping[str, Any], literal: Literal) -> dict[str, Any]:
    """Arguments that are a JSON object become it: templates write them in the family's own spelling."""
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise ValueError(f"a tool call is {{function: {{name, arguments}}}}, got {call!r:.80}")
    arguments = function.get("arguments")
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments) if arguments.strip() else {}
        except (ValueError, RecursionError):
            value = None
        arguments = value if isinstance(value, dict) else arguments
    made = {"type": "function", "function": {"name": function["name"], "arguments": _texts(arguments, literal)}}
    return {"id": call["id"], **made} if call.get("id") else made


def _texts(value: Any, literal: Literal) -> Any:
    if isinstance(value, str):
        return literal(value)
    if isinstance(value, Mapping):
        return {literal(str(key)): _texts(each, literal) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_texts(each, literal) for each in value]
    return value
