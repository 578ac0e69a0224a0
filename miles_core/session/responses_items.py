"""Items of OpenAI's Responses API to messages in the chat's shape, and replies to items. Pure.

What an assistant did in one turn is several items there (reasoning, a message, function calls) and one message here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from miles_core.session.faults import bad_request
from miles_core.types.task import Message

Item = Mapping[str, Any]

OWN = ("reasoning", "function_call")
"""Types of items that are the assistant's, beside its messages."""


def items_of(reply: Message, request: str) -> list[dict[str, Any]]:
    """The output items that say a reply; `request` makes their ids."""
    items: list[dict[str, Any]] = []
    if reasoning := reply.get("reasoning_content"):
        thought = {"type": "reasoning_text", "text": reasoning}
        items.append({"type": "reasoning", "id": f"rs_{request}", "summary": [], "content": [thought]})
    calls = reply.get("tool_calls", ())
    if reply["content"] or not calls:
        part = {"type": "output_text", "text": reply["content"], "annotations": [], "logprobs": []}
        said = {"type": "message", "id": f"msg_{request}", "role": "assistant", "status": "completed"}
        items.append({**said, "content": [part]})
    for index, call in enumerate(calls):
        function, own = call["function"], {"id": f"fc_{request}_{index}", "call_id": call["id"]}
        made = {"name": function["name"], "arguments": function["arguments"], "status": "completed"}
        items.append({"type": "function_call", **own, **made})
    return items


def to_messages(given: Any) -> list[dict[str, Any]]:
    """The `input` of a body. Raises SessionFault (400) that names the item."""
    if isinstance(given, str):
        return [{"role": "user", "content": given}]
    if not isinstance(given, list) or not given:
        raise bad_request("`input` must be text, or a list of one item or more")
    found: list[dict[str, Any]] = []
    mine: dict[str, Any] | None = None
    for place, item in enumerate(given):
        if not isinstance(item, dict):
            raise bad_request(f"input {place} is {type(item).__name__}, expected an object")
        kind = item.get("type", "message")
        if kind in OWN or (kind == "message" and item.get("role") == "assistant"):
            if mine is None:
                mine = {"role": "assistant", "content": ""}
                found.append(mine)
            _add(f"input {place}", mine, kind, item)
            continue
        mine = None
        found.append(_other(f"input {place}", kind, item))
    return found


def _add(where: str, mine: dict[str, Any], kind: str, item: Item) -> None:
    """One more item of what the assistant did."""
    if kind == "message":
        content = item.get("content")
        mine["content"] += content if isinstance(content, str) else _joined(where, content, ("output_text", "text"))
    elif kind == "reasoning":
        text = _joined(where, item.get("content") or item.get("summary") or [], ("reasoning_text", "summary_text"))
        mine["reasoning_content"] = mine.get("reasoning_content", "") + text
    else:
        function = {"name": item.get("name"), "arguments": item.get("arguments")}
        call = {"id": item.get("call_id"), "type": "function", "function": function}
        mine.setdefault("tool_calls", []).append(call)


def _other(where: str, kind: str, item: Item) -> dict[str, Any]:
    if kind == "message":
        return {"role": item.get("role"), "content": _said(where, item.get("content"))}
    if kind == "function_call_output":
        return {"role": "tool", "tool_call_id": item.get("call_id"), "content": _said(where, item.get("output"))}
    raise bad_request(
        f"{where} has the type {kind!r:.40}",
        code="unsupported_item",
        mend="messages, reasoning, function calls and their outputs go",
    )


def _said(where: str, content: Any) -> Any:
    """Text, or parts where there is an image among them."""
    if content is None or isinstance(content, str):
        return content
    texts = ("input_text", "output_text", "text")
    if isinstance(content, list) and not any(isinstance(p, dict) and p.get("type") == "input_image" for p in content):
        return _joined(where, content, texts, "\n")
    if not isinstance(content, list):
        raise bad_request(f"{where} has {type(content).__name__} as content, expected text or a list of parts")
    return [_part(where, part) for part in content]


def _part(where: str, part: Any) -> dict[str, Any]:
    if isinstance(part, dict) and part.get("type") == "input_image" and isinstance(part.get("image_url"), str):
        return {"type": "image_url", "image_url": {"url": part["image_url"]}}
    return {"type": "text", "text": _joined(where, [part], ("input_text", "output_text", "text"))}


def _joined(where: str, parts: Any, kinds: tuple[str, ...], between: str = "") -> str:
    if not isinstance(parts, list):
        raise bad_request(f"{where} has {type(parts).__name__} as content, expected text or a list of parts")
    for part in parts:
        if not isinstance(part, dict) or part.get("type") not in kinds or not isinstance(part.get("text"), str):
            raise bad_request(f"{where} has a part that is none of {', '.join(kinds)} with a `text`")
    return between.join(part["text"] for part in parts)
