"""The Anthropic dialect: bodies of `POST /v1/messages` to calls and back. Pure.

Conversations are converted to the one form of `messages.py`, so that a matcher, a template and a trainer see no
difference between dialects; `anthropic_blocks.py` does that. docs/sessions.md lists what becomes of each key.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from miles_core.contracts.engine import Finish
from miles_core.session.anthropic_blocks import blocks_of, forms_of, to_messages
from miles_core.session.call import ChatReply, ChatRequest
from miles_core.session.dialect import Call, Served
from miles_core.session.faults import SessionFault, bad_request
from miles_core.session.fields import asked_in_vain, flag, integer, model_name, temperature, unsupported
from miles_core.session.messages import read_messages
from miles_core.session.tools import read_tools
from miles_core.types.task import ToolDefinition

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "top_p": (1,),
    "top_k": (0, -1),
    "thinking": ({"type": "disabled"},),
    "output_config": ({},),
    "tool_choice": ({"type": "auto"},),
}
"""Keys that are not honoured -> values that ask for nothing. Any other value is counted as ignored."""

ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    410: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
OVERLOADED = 529


class Anthropic:
    """See `dialect.Dialect`."""

    def read(self, body: Mapping[str, Any], served: Served) -> Call:
        request = ChatRequest(
            messages=read_messages(to_messages(body, served.recognise(forms_of))),
            max_new_tokens=integer(body, "max_tokens", 1),
            temperature=temperature(body),
            ignored=asked_in_vain(body, NEUTRAL),
            tools=_tools(body),
        )
        _refuse_unsupported(body)
        model, ids = model_name(body, served.model), bool(body.get("return_token_ids"))
        return Call(
            request,
            flag(body, "stream"),
            partial(message_body, model=model, token_ids=ids),
            partial(events, model=model, token_ids=ids),
        )

    def status(self, fault: SessionFault) -> int:
        return OVERLOADED if fault.status == 503 else fault.status

    def error(self, fault: SessionFault) -> dict[str, Any]:
        kind = ERROR_TYPES.get(fault.status, "api_error" if fault.status >= 500 else "invalid_request_error")
        return {"type": "error", "error": {"type": kind, "message": fault.sentence, "code": fault.code}}

    def error_event(self, fault: SessionFault) -> str:
        return _event(self.error(fault))


def message_body(reply: ChatReply, *, model: str, token_ids: bool = False) -> dict[str, Any]:
    """The body of an answer that is not streamed."""
    node = reply.node
    body = {
        "id": f"msg_{node.sampled.request}",
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": blocks_of(node.reply),
        "stop_reason": _stop_reason(reply),
        "stop_sequence": None,
        "usage": usage(reply),
    }
    if token_ids:
        body["prompt_token_ids"] = node.tokens[: node.first_sampled].tolist()
        body["token_ids"] = node.sampled.tokens.tolist()
    return body


def events(reply: ChatReply, *, model: str, token_ids: bool = False) -> Iterator[str]:
    """The same as server-sent events: each block comes in one piece."""
    body = message_body(reply, model=model, token_ids=token_ids)
    blocks = body["content"]
    before = {**body["usage"], "output_tokens": 0}
    start = {**body, "content": [], "stop_reason": None, "usage": before}
    yield _event({"type": "message_start", "message": start})
    for index, block in enumerate(blocks):
        empty, deltas = _pieces(block)
        yield _event({"type": "content_block_start", "index": index, "content_block": empty})
        for delta in deltas:
            yield _event({"type": "content_block_delta", "index": index, "delta": delta})
        yield _event({"type": "content_block_stop", "index": index})
    ending = {"stop_reason": body["stop_reason"], "stop_sequence": None}
    yield _event({"type": "message_delta", "delta": ending, "usage": body["usage"]})
    yield _event({"type": "message_stop"})


def usage(reply: ChatReply) -> dict[str, int]:
    """Anthropic's `input_tokens` are those that no cache had."""
    cached = reply.node.sampled.cached_tokens
    return {
        "input_tokens": reply.prompt_tokens - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": len(reply.node.sampled.tokens),
    }


def _pieces(block: Mapping[str, Any]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """A block as it begins, and the deltas that make it whole."""
    if block["type"] == "text":
        return {"type": "text", "text": ""}, [{"type": "text_delta", "text": block["text"]}]
    if block["type"] == "thinking":
        thought = {"type": "thinking_delta", "thinking": block["thinking"]}
        signed = {"type": "signature_delta", "signature": block["signature"]}
        return {"type": "thinking", "thinking": "", "signature": ""}, [thought, signed]
    text = json.dumps(block["input"], ensure_ascii=False)
    return {**block, "input": {}}, [{"type": "input_json_delta", "partial_json": text}]


def _stop_reason(reply: ChatReply) -> str:
    if reply.node.sampled.finish is Finish.LENGTH:
        return "max_tokens"
    return "tool_use" if reply.node.reply.get("tool_calls") else "end_turn"


def _tools(body: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    given = body.get("tools")
    if given is None or not isinstance(given, list):
        return read_tools(given)
    return read_tools([_tool(place, tool) for place, tool in enumerate(given)])


def _tool(place: int, tool: Any) -> dict[str, Any]:
    if not isinstance(tool, dict):
        raise bad_request(f"tool {place} is {type(tool).__name__}, expected an object")
    if tool.get("type") not in (None, "custom"):
        raise unsupported("tools", f"tool {place} has the type {tool['type']!r:.40}: no tool runs on this server")
    given = {"name": "name", "description": "description", "input_schema": "parameters"}
    function = {ours: tool.get(theirs) for theirs, ours in given.items()}
    return {"type": "function", "function": function}


def _refuse_unsupported(body: Mapping[str, Any]) -> None:
    if body.get("stop_sequences"):
        raise unsupported(
            "stop_sequences", "stop sequences are not supported: a turn ends with the model's own stop token"
        )
    if body.get("output_format"):
        raise unsupported("output_format", "structured output is not supported")


def _event(body: Mapping[str, Any]) -> str:
    return f"event: {body['type']}\ndata: {json.dumps(body)}\n\n"
