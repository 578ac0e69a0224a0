"""Anthropic's content blocks to messages in OpenAI's shape, and replies to blocks. Pure.

A reply that a client sends back is recognised by the blocks that it was sent as (`form`): tool arguments that were
spelled in another way, or white space that harnesses drop, then still are the stored reply, and the strict matcher
holds. What nobody recognises is converted as it stands.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from miles_core.session.body import check_value
from miles_core.session.faults import bad_request
from miles_core.types.task import Message

Block = Mapping[str, Any]
Recognise = Callable[[Sequence[Mapping[str, Any]], str], Message | None]

SIGNATURE = "miles"
"""Of thinking blocks: clients only send it back."""

UNPARSED = "unparsed_arguments"
"""The one key of the `input` of a call whose arguments are no JSON object: the text that was sampled."""


def blocks_of(reply: Message) -> list[dict[str, Any]]:
    """The content blocks that say a reply. Text of white space alone is left out: clients may not send it back."""
    blocks: list[dict[str, Any]] = []
    if reasoning := reply.get("reasoning_content"):
        blocks.append({"type": "thinking", "thinking": reasoning, "signature": SIGNATURE})
    content = reply["content"] if isinstance(reply["content"], str) else _text(reply["content"], "")
    if content.strip():
        blocks.append({"type": "text", "text": content})
    for call in reply.get("tool_calls", ()):
        function = call["function"]
        blocks.append(
            {"type": "tool_use", "id": call["id"], "name": function["name"], "input": _input(function["arguments"])}
        )
    return blocks


def forms_of(reply: Message) -> tuple[str, ...]:
    """The forms in which a client may send a reply back: with its reasoning, or without."""
    blocks: list[Block] = [*blocks_of(reply)]
    return tuple(dict.fromkeys([form(blocks), form([block for block in blocks if block["type"] != "thinking"])]))


def form(blocks: list[Block]) -> str:
    """What a client sees of blocks, as one text: equal for what it may send back of them."""
    parts: list[Any] = []
    for block in blocks:
        kind = block["type"]
        if kind == "text" and block["text"].strip():
            parts.append(["text", block["text"]])
        elif kind == "thinking":
            parts.append(["thinking", block["thinking"]])
        elif kind == "tool_use":
            parts.append(["tool_use", block["id"], block["name"], _plain(block["input"])])
    return json.dumps(parts, sort_keys=True)


def to_messages(body: Mapping[str, Any], recognise: Recognise) -> list[dict[str, Any] | Message]:
    """`system` and `messages` of a body in OpenAI's shape. Raises SessionFault (400) that names the message."""
    found: list[dict[str, Any] | Message] = []
    if system := body.get("system"):
        found.append({"role": "system", "content": _words(system, "`system`")})
    given = body.get("messages")
    if not isinstance(given, list) or not given:
        raise bad_request("`messages` must be a list of one message or more")
    for place, message in enumerate(given):
        found += _converted(f"message {place}", message, partial(recognise, tuple(found)))
    return found


def _converted(where: str, message: Any, recognise: Callable[[str], Message | None]) -> list[dict[str, Any] | Message]:
    if not isinstance(message, dict):
        raise bad_request(f"{where} is {type(message).__name__}, expected an object")
    role, content = message.get("role"), message.get("content")
    if role not in ("user", "assistant", "system"):
        raise bad_request(f"{where} has the role {role!r:.40}", code="unknown_role", mend="one of user, assistant")
    blocks = _checked(where, [{"type": "text", "text": content}] if isinstance(content, str) else content)
    if role == "assistant":
        return [recognise(form(blocks)) or _assistant(where, blocks)]
    return _others(where, role, blocks)


def _assistant(where: str, blocks: list[Block]) -> dict[str, Any]:
    thinking = "".join(block["thinking"] for block in blocks if block["type"] == "thinking")
    calls = [
        {
            "id": block["id"],
            "type": "function",
            "function": {"name": block["name"], "arguments": json.dumps(block["input"], ensure_ascii=False)},
        }
        for block in blocks
        if block["type"] == "tool_use"
    ]
    strange = next((b["type"] for b in blocks if b["type"] not in ("text", "tool_use", *THOUGHTS)), None)
    if strange is not None:
        raise bad_request(f"{where} (assistant) has a block of the type {strange!r:.40}")
    made: dict[str, Any] = {"role": "assistant", "content": _text(blocks, "")}
    return {**made, **({"reasoning_content": thinking} if thinking else {}), **({"tool_calls": calls} if calls else {})}


THOUGHTS = ("thinking", "redacted_thinking")


def _others(where: str, role: str, blocks: list[Block]) -> list[dict[str, Any] | Message]:
    """Tool results become messages of their own, in their place among what else the user says."""
    found: list[dict[str, Any] | Message] = []
    said: list[Block] = []

    def flush() -> None:
        if said:
            found.append({"role": role, "content": _said(where, said)})
            said.clear()

    for block in blocks:
        if block["type"] == "tool_result":
            flush()
            result = block.get("content")
            content = "" if result is None else _words(result, f"the tool result of {where}")
            found.append({"role": "tool", "tool_call_id": block["tool_use_id"], "content": content})
        else:
            said.append(block)
    flush()
    return found or [{"role": role, "content": ""}]


def _words(given: Any, what: str) -> Any:
    """Text, or blocks of text (joined by line ends), or parts where there is an image among them."""
    if isinstance(given, str):
        return given
    return _said(what, _checked(what, given))


def _said(where: str, blocks: list[Block]) -> Any:
    if all(block["type"] == "text" for block in blocks):
        return _text(blocks, "\n")
    parts = []
    for block in blocks:
        if block["type"] == "text":
            parts.append({"type": "text", "text": block["text"]})
        elif block["type"] == "image":
            parts.append({"type": "image_url", "image_url": {"url": _image(where, block.get("source"))}})
        else:
            raise bad_request(
                f"{where} has a block of the type {block['type']!r:.40}: text, images and tool results go"
            )
    return parts


def _image(where: str, source: Any) -> str:
    if isinstance(source, dict):
        if source.get("type") == "url" and isinstance(source.get("url"), str):
            return str(source["url"])
        if source.get("type") == "base64" and isinstance(source.get("data"), str):
            return f"data:{source.get('media_type', 'image/png')};base64,{source['data']}"
    raise bad_request(f"{where} has an image without a `source` of the type base64 or url")


NEEDED: Mapping[str, Mapping[str, type]] = {
    "text": {"text": str},
    "thinking": {"thinking": str},
    "tool_use": {"id": str, "name": str, "input": dict},
    "tool_result": {"tool_use_id": str},
}
"""What a block must have, by its type."""


def _checked(where: str, blocks: Any) -> list[Block]:
    if not isinstance(blocks, list):
        raise bad_request(f"{where} has {type(blocks).__name__} as content, expected text or a list of blocks")
    for block in blocks:
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            raise bad_request(f"{where} has a block without a `type`")
        for key, kind in NEEDED.get(block["type"], {}).items():
            if not isinstance(block.get(key), kind):
                raise bad_request(f"a {block['type']} block of {where} needs `{key}`")
    return blocks


def _text(blocks: list[Block], between: str) -> str:
    return between.join(block["text"] for block in blocks if block["type"] == "text")


def _input(arguments: Any) -> dict[str, Any]:
    try:
        value = json.loads(arguments or "{}", parse_constant=_refuse) if isinstance(arguments, str) else arguments
        check_value(value)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {UNPARSED: arguments}


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


def _plain(value: Any) -> Any:
    """Numbers as a client in any language may send them back: 1.0 and 1 are one, true is none."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        return [_plain(each) for each in value]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    return value
