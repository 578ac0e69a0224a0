"""OpenAI's Responses API: whole, streamed, with function calls, and going on from a response's id."""

from __future__ import annotations

import openai
import pytest
from serving import call, check_against_log, client_of, served, user

from miles_core import Sampling
from miles_core.session.messages import normal, read_messages
from miles_core.session.responses_items import items_of, to_messages
from miles_core.testing import CharToolRenderer, ScriptedEngine, make_attempt

TOOL = {"type": "function", "name": "add", "description": "adds", "parameters": {"type": "object"}, "strict": True}
CALLING = '<think>sum it</think>let me see<call>add {"a":  1.0}</call><call>add {"b": 0}</call>'


def long_attempt():
    return make_attempt(sampling=Sampling(max_new_tokens=200, stop_tokens=(0,)))


async def test_function_calls_go_round_and_every_token_is_kept():
    engine = ScriptedEngine([CALLING, "three", "bye"])
    async with served(engine, CharToolRenderer()) as server:
        address = await server.open(long_attempt())
        client = client_of(address)
        asked = {"model": "m", "instructions": "be kind", "tools": [TOOL]}
        items = [{"role": "user", "content": [{"type": "input_text", "text": "1 + 2?"}]}]
        first = await client.responses.create(input=items, **asked)
        assert [item.type for item in first.output] == ["reasoning", "message", "function_call", "function_call"]
        assert (first.status, first.output_text) == ("completed", "let me see")
        items += [item.model_dump() for item in first.output]
        items += [
            {"type": "function_call_output", "call_id": item.call_id, "output": "3"}
            for item in first.output
            if item.type == "function_call"
        ]
        second = await client.responses.create(input=items, **asked)
        assert second.output_text == "three"
        third = await client.responses.create(input="thanks", previous_response_id=second.id, **asked)
        assert third.usage.input_tokens == len(engine.log[2].prompt)
        check_against_log((await server.collect(address.api_key)).sequences[0], engine.log)


async def test_a_stream_is_the_same_response():
    async with served(ScriptedEngine([CALLING] * 2), CharToolRenderer()) as server:
        plain, streamed = await server.open(long_attempt()), await server.open(long_attempt())
        whole = await client_of(plain).responses.create(model="m", input="hi", tools=[TOOL])
        kinds, final = [], None
        async with client_of(streamed).responses.stream(model="m", input="hi", tools=[TOOL]) as stream:
            async for event in stream:
                kinds.append(event.type)
            final = await stream.get_final_response()
    assert kinds[0] == "response.created" and kinds[-1] == "response.completed"
    assert "response.function_call_arguments.done" in kinds and "response.output_text.delta" in kinds
    said = [[(i.type, getattr(i, "arguments", None)) for i in each.output] for each in (whole, final)]
    assert said[0] == said[1] and final.output_text == whole.output_text
    assert final.output[0].content[0].text == whole.output[0].content[0].text == "sum it"
    assert final.usage == whole.usage


async def test_a_cut_response_is_incomplete():
    async with served(ScriptedEngine(["abcdef"])) as server:
        address = await server.open(make_attempt())
        cut = await client_of(address).responses.create(model="m", input="hi", max_output_tokens=3)
        assert (cut.status, cut.incomplete_details.reason, cut.output_text) == (
            "incomplete",
            "max_output_tokens",
            "abc",
        )


@pytest.mark.parametrize(
    ("code", "body"),
    [
        ("invalid_request", {"input": []}),
        ("invalid_request", {"input": "x", "instructions": 3}),
        ("unknown_role", {"input": [{"role": "wizard", "content": "x"}]}),
        ("tool_result_without_call", {"input": [{"type": "function_call_output", "call_id": "1", "output": "x"}]}),
        ("unsupported_item", {"input": [{"type": "item_reference", "id": "x"}]}),
        ("unsupported_tools", {"input": "x", "tools": [{"type": "web_search"}]}),
        ("unsupported_text_format", {"input": "x", "text": {"format": {"type": "json_object"}}}),
        ("unsupported_background", {"input": "x", "background": True}),
        ("previous_response_not_found", {"input": "x", "previous_response_id": "resp_nobody"}),
    ],
)
async def test_bad_requests_are_told(code, body):
    engine = ScriptedEngine()
    async with served(engine) as server:
        address = await server.open(make_attempt())
        status, told, _ = await call(address, path="/responses", json=body)
        assert (status, told["error"]["code"]) == (400, code), told
        assert not engine.log and server.store.faults == {code: 1}
        with pytest.raises(openai.BadRequestError):
            await client_of(address).responses.create(**{"model": "m", **body})


def test_a_reply_that_was_sent_as_items_comes_back_as_itself():
    for given in (
        {"content": "x"},
        {"content": ""},
        {"content": "", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": '{"a":  1}'}}]},
        {"content": "y\n", "reasoning_content": "because", "tool_calls": []},
    ):
        reply = normal({"role": "assistant", **given})
        assert read_messages([user("q"), *to_messages(items_of(reply, "r")), user("go on")])[1] == reply
