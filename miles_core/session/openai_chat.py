"""The OpenAI chat dialect: bodies of `POST /v1/chat/completions` to calls and back. Pure.

docs/sessions.md lists what becomes of each key. Unknown keys are ignored; keys that are known, change what is sampled
and cannot be honoured are refused when the agent would break without them (`stop`, `n`, `response_format`) and counted
otherwise (`top_p`, penalties, `tool_choice`: nobody can make a model call a tool, or not, without changing what it
samples).
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from miles_core.contracts.engine import Finish
from miles_core.session.call import ChatReply, ChatRequest
from miles_core.session.dialect import Call, Served
from miles_core.session.faults import SessionFault
from miles_core.session.fields import asked_in_vain, flag, integer, lowest, model_name, temperature, unsupported
from miles_core.session.messages import read_messages
from miles_core.session.tools import read_tools

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
    "reasoning_effort": (),
    "chat_template_kwargs": ({},),
    "tool_choice": ("auto",),
    "parallel_tool_calls": (True,),
}
"""Keys that are not honoured -> values that ask for nothing. Any other value is counted as ignored."""

ERROR_TYPES = {401: "authentication_error", 409: "conflict_error", 429: "rate_limit_error"}


class OpenAIChat:
    """See `dialect.Dialect`."""

    def read(self, body: Mapping[str, Any], served: Served) -> Call:
        request, shape = read_body(body, served.model)
        return Call(
            request,
            shape.stream,
            whole=lambda reply: completion(reply, shape, served.token_text),
            events=lambda reply: events(reply, shape, served.token_text),
        )

    def status(self, fault: SessionFault) -> int:
        return fault.status

    def error(self, fault: SessionFault) -> dict[str, Any]:
        return error_body(fault)

    def error_event(self, fault: SessionFault) -> str:
        return f"data: {json.dumps(error_body(fault))}\n\n"


@dataclass(frozen=True, slots=True)
class Shape:
    """How the client wants its answer."""

    model: str
    stream: bool
    usage_chunk: bool
    logprobs: bool
    tokens_as_ids: bool
    token_ids: bool


def read_body(body: Mapping[str, Any], served_model: str) -> tuple[ChatRequest, Shape]:
    """Raises SessionFault (400) that names the key."""
    _refuse_unsupported(body)
    request = ChatRequest(
        messages=read_messages(body.get("messages")),
        tools=read_tools(body.get("tools")),
        max_new_tokens=lowest(integer(body, key, 1) for key in ("max_tokens", "max_completion_tokens")),
        temperature=temperature(body),
        seed=integer(body, "seed"),
        ignored=asked_in_vain(body, NEUTRAL),
    )
    options = body.get("stream_options")
    shape = Shape(
        model=model_name(body, served_model),
        stream=flag(body, "stream"),
        usage_chunk=isinstance(options, dict) and bool(options.get("include_usage")),
        logprobs=flag(body, "logprobs"),
        tokens_as_ids=bool(body.get("return_tokens_as_token_ids")),
        token_ids=bool(body.get("return_token_ids")),
    )
    return request, shape


def completion(reply: ChatReply, shape: Shape, token_text: Callable[[int], str]) -> dict[str, Any]:
    """The body of an answer that is not streamed."""
    choice = {"index": 0, "message": _message(reply), **_ending(reply, shape, token_text)}
    body = {**_head(reply, shape, "chat.completion"), "choices": [choice], "usage": usage(reply)}
    if shape.token_ids:
        body["prompt_token_ids"] = choice["prompt_token_ids"]
    return body


def events(reply: ChatReply, shape: Shape, token_text: Callable[[int], str]) -> Iterator[str]:
    """The same as server-sent events. The turn is complete by now: its message comes in one piece."""
    head = _head(reply, shape, "chat.completion.chunk")
    message = _message(reply)
    if "tool_calls" in message:
        message["tool_calls"] = [{"index": index, **call} for index, call in enumerate(message["tool_calls"])]
    ending = _ending(reply, shape, token_text)
    reason = ending.pop("finish_reason")
    said = {"index": 0, "delta": message, "finish_reason": None, **ending}
    first = {**head, "choices": [said]}
    if shape.token_ids:
        first["prompt_token_ids"] = said["prompt_token_ids"]
    chunks = [first, {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}]
    if shape.usage_chunk:
        chunks.append({**head, "choices": [], "usage": usage(reply)})
    for chunk in chunks:
        yield f"data: {json.dumps(chunk)}\n\n"
    yield "data: [DONE]\n\n"


def usage(reply: ChatReply) -> dict[str, Any]:
    sampled = reply.node.sampled
    return {
        "prompt_tokens": reply.prompt_tokens,
        "completion_tokens": len(sampled.tokens),
        "total_tokens": reply.prompt_tokens + len(sampled.tokens),
        "prompt_tokens_details": {"cached_tokens": sampled.cached_tokens},
    }


def error_body(fault: SessionFault) -> dict[str, Any]:
    kind = ERROR_TYPES.get(fault.status, "server_error" if fault.status >= 500 else "invalid_request_error")
    return {"error": {"message": fault.sentence, "type": kind, "param": None, "code": fault.code}}


def _refuse_unsupported(body: Mapping[str, Any]) -> None:
    if body.get("n") not in (None, 1):
        raise unsupported("n", "a session is one conversation: `n` must be 1")
    if body.get("stop"):
        raise unsupported("stop", "stop strings are not supported: a turn ends with the model's own stop token")
    for key, instead in (("functions", "tools"), ("function_call", "tool_choice")):
        if body.get(key):
            raise unsupported(key, f"`{key}` is not supported: use `{instead}`")
    response_format = body.get("response_format")
    if response_format not in (None, {"type": "text"}):
        raise unsupported("response_format", "only `response_format: {type: text}` is supported")


def _head(reply: ChatReply, shape: Shape, kind: str) -> dict[str, Any]:
    created = int(time.time())
    return {"id": f"chatcmpl-{reply.node.sampled.request}", "object": kind, "created": created, "model": shape.model}


def _message(reply: ChatReply) -> dict[str, Any]:
    message = dict(reply.node.reply)
    if message.get("tool_calls") and not message["content"]:
        message["content"] = None
    return message


def _ending(reply: ChatReply, shape: Shape, token_text: Callable[[int], str]) -> dict[str, Any]:
    """The fields of a choice beside its message."""
    node = reply.node
    reason = "tool_calls" if node.reply.get("tool_calls") else "stop"
    fields: dict[str, Any] = {
        "finish_reason": "length" if node.sampled.finish is Finish.LENGTH else reason,
        "logprobs": _logprobs(reply, shape, token_text) if shape.logprobs else None,
    }
    if shape.token_ids:
        fields["prompt_token_ids"] = node.tokens[: node.first_sampled].tolist()
        fields["token_ids"] = node.sampled.tokens.tolist()
    return fields


def _logprobs(reply: ChatReply, shape: Shape, token_text: Callable[[int], str]) -> dict[str, Any]:
    """Of every sampled token, the stop token included, at the temperature that it was sampled with."""
    content = []
    for token, logprob in zip(reply.node.sampled.tokens.tolist(), reply.node.sampled.logprobs.tolist(), strict=True):
        text = token_text(token)
        shown = f"token_id:{token}" if shape.tokens_as_ids else text
        content.append(
            {"token": shown, "logprob": logprob, "bytes": list(text.encode(errors="replace")), "top_logprobs": []}
        )
    return {"content": content, "refusal": None}
