"""Token-in/token-out inside a session: `POST …/inference/v1/generate`, for harnesses that render themselves. Pure.

The prompt's ids are recorded as they are given. A call goes on from the turn with whose tokens it begins.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial
from typing import Any

import numpy as np

from miles_core.contracts.engine import Finish
from miles_core.session.call import ChatReply, TokenRequest
from miles_core.session.dialect import Call, Served
from miles_core.session.faults import SessionFault, bad_request
from miles_core.session.fields import asked_in_vain, flag, integer, lowest, temperature, unsupported
from miles_core.session.openai_chat import error_body
from miles_core.types.sequence import TokenArray

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "top_p": (1,),
    "top_k": (0, -1),
    "min_p": (0,),
    "presence_penalty": (0,),
    "frequency_penalty": (0,),
    "repetition_penalty": (1,),
    "logit_bias": ({},),
}
"""Keys of `sampling_params` that are not honoured -> values that ask for nothing."""

LARGEST = 2**31 - 1


class TokenIn:
    """See `dialect.Dialect`."""

    def read(self, body: Mapping[str, Any], served: Served) -> Call:
        sampling = body.get("sampling_params") or {}
        if not isinstance(sampling, dict):
            raise bad_request(f"`sampling_params` is {type(sampling).__name__}, expected an object")
        if sampling.get("n") not in (None, 1):
            raise unsupported("n", "a session is one conversation: `n` must be 1")
        if sampling.get("stop"):
            raise unsupported("stop", "stop strings are not supported: name tokens in `stop_token_ids`")
        if body.get("features"):
            raise unsupported("features", "pixel inputs are not supported with prompts given as tokens")
        request = TokenRequest(
            tokens=_ids("token_ids", body.get("token_ids")),
            max_new_tokens=lowest(integer(sampling, key, 1) for key in ("max_tokens", "max_new_tokens")),
            temperature=temperature(sampling),
            seed=integer(sampling, "seed"),
            ignored=asked_in_vain(sampling, NEUTRAL),
            stop_tokens=tuple(_ids("stop_token_ids", sampling.get("stop_token_ids") or [], least=0).tolist()),
        )
        shown = bool(sampling.get("logprobs")) or sampling.get("logprobs") == 0
        return Call(request, flag(body, "stream"), partial(answer, logprobs=shown), partial(_events, logprobs=shown))

    def status(self, fault: SessionFault) -> int:
        return fault.status

    def error(self, fault: SessionFault) -> dict[str, Any]:
        return error_body(fault)

    def error_event(self, fault: SessionFault) -> str:
        return f"data: {json.dumps(error_body(fault))}\n\n"


def answer(reply: ChatReply, *, logprobs: bool) -> dict[str, Any]:
    """The body of an answer: the ids that were sampled, a stop token included."""
    sampled = reply.node.sampled
    ids = sampled.tokens.tolist()
    content = [
        {"token": f"token_id:{token}", "logprob": logprob, "top_logprobs": []}
        for token, logprob in zip(ids, sampled.logprobs.tolist(), strict=True)
    ]
    choice = {
        "index": 0,
        "token_ids": ids,
        "logprobs": {"content": content} if logprobs else None,
        "finish_reason": "length" if sampled.finish is Finish.LENGTH else "stop",
    }
    return {
        "request_id": sampled.request,
        "choices": [choice],
        "usage": {"prompt_tokens": reply.prompt_tokens, "completion_tokens": len(ids)},
    }


def _events(reply: ChatReply, *, logprobs: bool) -> Iterator[str]:
    yield f"data: {json.dumps(answer(reply, logprobs=logprobs))}\n\n"
    yield "data: [DONE]\n\n"


def _ids(key: str, given: Any, least: int = 1) -> TokenArray:
    """int32 [n]."""
    whole = isinstance(given, list) and all(type(each) is int and 0 <= each <= LARGEST for each in given)
    if not whole or len(given) < least:
        raise bad_request(f"`{key}` must be a list of token ids{', one or more' if least else ''}")
    return np.array(given, np.int32)
