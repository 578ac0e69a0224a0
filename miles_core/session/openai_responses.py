"""OpenAI's Responses dialect: bodies of `POST /v1/responses` to calls and back. Pure.

`previous_response_id` names a turn of the session's own tree: the conversation up to it goes before the new input.
"""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

from miles_core.contracts.engine import Finish
from miles_core.session.call import ChatReply, ChatRequest
from miles_core.session.dialect import Call, Served
from miles_core.session.faults import SessionFault, bad_request
from miles_core.session.fields import asked_in_vain, flag, integer, model_name, temperature, unsupported
from miles_core.session.messages import read_messages
from miles_core.session.openai_chat import error_body
from miles_core.session.responses_items import items_of, to_messages
from miles_core.session.tools import read_tools
from miles_core.types.task import Message, ToolDefinition

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "top_p": (1,),
    "reasoning": ({},),
    "tool_choice": ("auto",),
    "parallel_tool_calls": (True,),
}
"""Keys that are not honoured -> values that ask for nothing. Any other value is counted as ignored."""

PREFIX = "resp_"


class OpenAIResponses:
    """See `dialect.Dialect`."""

    def read(self, body: Mapping[str, Any], served: Served) -> Call:
        _refuse_unsupported(body)
        request = ChatRequest(
            messages=read_messages(_conversation(body, served)),
            max_new_tokens=integer(body, "max_output_tokens", 1),
            temperature=temperature(body),
            ignored=asked_in_vain(body, NEUTRAL),
            tools=_tools(body),
        )
        model, ids = model_name(body, served.model), bool(body.get("return_token_ids"))
        return Call(
            request,
            flag(body, "stream"),
            partial(response, body, model=model, token_ids=ids),
            partial(events, body, model=model, token_ids=ids),
        )

    def status(self, fault: SessionFault) -> int:
        return fault.status

    def error(self, fault: SessionFault) -> dict[str, Any]:
        return error_body(fault)

    def error_event(self, fault: SessionFault) -> str:
        told = {"type": "error", "code": fault.code, "message": fault.sentence, "param": None, **error_body(fault)}
        return f"event: error\ndata: {json.dumps(told)}\n\n"


def response(body: Mapping[str, Any], reply: ChatReply, *, model: str, token_ids: bool = False) -> dict[str, Any]:
    """The body of an answer that is not streamed."""
    node = reply.node
    cut = node.sampled.finish is Finish.LENGTH
    made: dict[str, Any] = {
        "id": f"{PREFIX}{node.sampled.request}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "incomplete" if cut else "completed",
        "incomplete_details": {"reason": "max_output_tokens"} if cut else None,
        "error": None,
        "model": model,
        "output": items_of(node.reply, node.sampled.request),
        "usage": usage(reply),
        "tools": body.get("tools") or [],
        "tool_choice": "auto",
        "parallel_tool_calls": True,
        "instructions": body.get("instructions"),
        "previous_response_id": body.get("previous_response_id"),
        "metadata": body.get("metadata") or {},
    }
    if token_ids:
        made["prompt_token_ids"] = node.tokens[: node.first_sampled].tolist()
        made["token_ids"] = node.sampled.tokens.tolist()
    return made


def events(body: Mapping[str, Any], reply: ChatReply, *, model: str, token_ids: bool = False) -> Iterator[str]:
    """The same as server-sent events: each item comes in one piece."""
    whole = response(body, reply, model=model, token_ids=token_ids)
    begun = {**whole, "status": "in_progress", "incomplete_details": None, "output": [], "usage": None}
    number = itertools.count()

    def event(kind: str, **facts: Any) -> str:
        return f"event: {kind}\ndata: {json.dumps({'type': kind, 'sequence_number': next(number), **facts})}\n\n"

    yield event("response.created", response=begun)
    yield event("response.in_progress", response=begun)
    for index, item in enumerate(whole["output"]):
        empty, pieces = _pieces(item)
        yield event("response.output_item.added", output_index=index, item=empty)
        for kind, facts in pieces:
            yield event(kind, item_id=item["id"], output_index=index, **facts)
        yield event("response.output_item.done", output_index=index, item=item)
    yield event(f"response.{whole['status']}", response=whole)


def usage(reply: ChatReply) -> dict[str, Any]:
    sampled = reply.node.sampled
    return {
        "input_tokens": reply.prompt_tokens,
        "input_tokens_details": {"cached_tokens": sampled.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": len(sampled.tokens),
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": reply.prompt_tokens + len(sampled.tokens),
    }


def _pieces(item: Mapping[str, Any]) -> tuple[dict[str, Any], list[tuple[str, dict[str, Any]]]]:
    """An item as it begins, and the events that make it whole."""
    if item["type"] == "function_call":
        text = item["arguments"]
        kind = "response.function_call_arguments"
        done = {"arguments": text, "name": item["name"]}
        return {**item, "arguments": "", "status": "in_progress"}, [
            (f"{kind}.delta", {"delta": text}),
            (f"{kind}.done", done),
        ]
    (part,) = item["content"]
    kind = "response.output_text" if part["type"] == "output_text" else "response.reasoning_text"
    more: dict[str, Any] = {"logprobs": []} if part["type"] == "output_text" else {}
    at = {"content_index": 0}
    pieces = [
        ("response.content_part.added", {**at, "part": {**part, "text": ""}}),
        (f"{kind}.delta", {**at, "delta": part["text"], **more}),
        (f"{kind}.done", {**at, "text": part["text"], **more}),
        ("response.content_part.done", {**at, "part": part}),
    ]
    begun = {"status": "in_progress"} if "status" in item else {}
    return {**item, "content": [], **begun}, pieces


def _conversation(body: Mapping[str, Any], served: Served) -> list[Message]:
    """Instructions, what went before, and the new input."""
    instructions = body.get("instructions")
    if instructions is not None and not isinstance(instructions, str):
        raise bad_request(f"`instructions` is {type(instructions).__name__}, expected text")
    before: list[Message] = []
    if previous := body.get("previous_response_id"):
        found = served.earlier(previous.removeprefix(PREFIX)) if isinstance(previous, str) else None
        if found is None:
            raise bad_request(
                f"the session has no response {previous!r:.80}",
                code="previous_response_not_found",
                mend="name one of this session, or send the whole input",
            )
        before = list(found)
    if instructions:
        head: Message = {"role": "system", "content": instructions}
        before = [head, *before[1:]] if before and before[0]["role"] == "system" else [head, *before]
    return [*before, *to_messages(body.get("input"))]


def _tools(body: Mapping[str, Any]) -> tuple[ToolDefinition, ...]:
    """Functions stand flat in this dialect."""
    given = body.get("tools")
    if not isinstance(given, list):
        return read_tools(given)
    return read_tools([{**tool, "function": tool} if isinstance(tool, dict) else tool for tool in given])


def _refuse_unsupported(body: Mapping[str, Any]) -> None:
    for key in ("background", "conversation", "prompt"):
        if body.get(key):
            raise unsupported(key, f"`{key}` is not supported")
    text = body.get("text")
    form = text.get("format") if isinstance(text, dict) else None
    if form is not None and form != {"type": "text"}:
        raise unsupported("text_format", "only `text: {format: {type: text}}` is supported")
