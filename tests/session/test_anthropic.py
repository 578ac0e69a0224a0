"""Anthropic's own client against a served session: what is sampled is kept, and what is replayed is recognised."""

from __future__ import annotations

import asyncio
import json

import anthropic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from serving import call, check_against_log, served, user

from miles_core import Sampling, SessionRules
from miles_core.session.anthropic_blocks import blocks_of, form, forms_of, to_messages
from miles_core.session.messages import normal, read_messages
from miles_core.testing import CharToolRenderer, ScriptedEngine, make_attempt

TOOL = {"name": "add", "description": "adds", "input_schema": {"type": "object", "properties": {"a": {}}}}
CALLING = '<think>sum it</think>let me see<call>add {"a":  1.0, "b" :[2, true]}</call><call>add {"b": 0}</call>'


def root(address) -> str:
    return address.base_url.removesuffix("/v1")


def client_of(address, **options) -> anthropic.AsyncAnthropic:
    return anthropic.AsyncAnthropic(base_url=root(address), api_key=address.api_key, **{"max_retries": 0, **options})


def long_attempt(**options):
    return make_attempt(sampling=Sampling(max_new_tokens=200, stop_tokens=(0,)), **options)


async def test_several_turns_with_tools_and_thinking_are_one_sequence():
    engine = ScriptedEngine([CALLING, "three", "bye"])
    async with served(engine, CharToolRenderer()) as server:
        address = await server.open(long_attempt())
        client = client_of(address)
        asked = {"model": "m", "max_tokens": 200, "system": "be kind", "tools": [TOOL]}
        messages = [user("1 + 2?")]
        first = await client.messages.create(messages=messages, **asked)
        assert [block.type for block in first.content] == ["thinking", "text", "tool_use", "tool_use"]
        assert (first.stop_reason, first.content[2].input) == ("tool_use", {"a": 1, "b": [2, True]})
        results = [
            {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "3"}]}
            for block in first.content[2:]
        ]
        messages += [
            {"role": "assistant", "content": [block.model_dump() for block in first.content]},
            {"role": "user", "content": [*results, {"type": "text", "text": "well?"}]},
        ]
        second = await client.messages.create(messages=messages, **asked)
        assert (second.stop_reason, second.content[0].text) == ("end_turn", "three")
        messages += [{"role": "assistant", "content": second.content}, user("thanks")]
        await client.messages.create(messages=messages, **asked)
        collected = await server.collect(address.api_key)
    (sequence,) = collected.sequences
    check_against_log(sequence, engine.log)
    assert collected.turns == 3 and second.usage.input_tokens == len(engine.log[1].prompt)


async def test_a_reply_of_another_branch_that_looks_the_same_is_not_taken_for_ones_own():
    engine = ScriptedEngine([" ", "  ", "x", "y"])  # a client sees no block of either
    async with served(engine, CharToolRenderer()) as server:
        address = await server.open(long_attempt(), SessionRules("branching"))
        client = client_of(address)
        for word in "ab":
            await client.messages.create(model="m", max_tokens=200, messages=[user(word)])
        for number, word in enumerate("ab"):
            messages = [user(word), {"role": "assistant", "content": []}, user("go on")]
            await client.messages.create(model="m", max_tokens=200, messages=messages)
            node = server.store.find(address.api_key).conversation.tree.nodes[-1]
            assert node.parent.number == number and node.messages[0]["content"] == word


@pytest.mark.parametrize("forgets", [(), ("thinking",)])
async def test_a_replay_is_recognised_whatever_a_javascript_client_makes_of_it(forgets):
    engine = ScriptedEngine([CALLING, "x"])
    async with served(engine, CharToolRenderer()) as server:
        address = await server.open(long_attempt())
        client = client_of(address)
        first = await client.messages.create(model="m", max_tokens=200, messages=[user("hi")], tools=[TOOL])
        blocks = [block.model_dump() for block in first.content if block.type not in forgets]
        for block in blocks:
            if block["type"] == "tool_use":
                block["input"] = json.loads(json.dumps(block["input"], sort_keys=True).replace("1.0", "1"))
        blocks[0]["cache_control"] = {"type": "ephemeral"}
        results = [
            {"type": "tool_result", "tool_use_id": b["id"], "content": "ok"} for b in blocks if b["type"] == "tool_use"
        ]
        messages = [user("hi"), {"role": "assistant", "content": blocks}, {"role": "user", "content": results}]
        await client.messages.create(model="m", max_tokens=200, messages=messages, tools=[TOOL])
        check_against_log((await server.collect(address.api_key)).sequences[0], engine.log)
        blocks[-1]["input"] = {"b": 1}
        with pytest.raises(anthropic.ConflictError) as error:
            await client.messages.create(model="m", max_tokens=200, messages=messages, tools=[TOOL])
        assert error.value.body["error"]["code"] == "history_diverged"


async def test_a_stream_is_the_same_message():
    async with served(ScriptedEngine([CALLING] * 2), CharToolRenderer()) as server:
        plain, streamed = await server.open(long_attempt()), await server.open(long_attempt())
        asked = {"model": "m", "max_tokens": 200, "messages": [user("hi")], "tools": [TOOL]}
        whole = await client_of(plain).messages.create(**asked)
        async with client_of(streamed).messages.stream(**asked) as stream:
            kinds = [event.type async for event in stream]
            final = await stream.get_final_message()
    assert kinds[0] == "message_start" and kinds[-1] == "message_stop"
    drop = {"id": True, "content": {"__all__": {"id"}}}
    assert final.model_dump(exclude=drop, exclude_none=True) == whole.model_dump(exclude=drop, exclude_none=True)
    assert final.stop_reason == "tool_use" and final.usage == whole.usage


def test_the_plain_client_talks_and_streams_too():
    engine = ScriptedEngine(["one", "two"])

    async def main():
        async with served(engine) as server:
            address = await server.open(make_attempt())

            def talk():
                client = anthropic.Anthropic(base_url=root(address), auth_token=address.api_key, max_retries=0)
                first = client.messages.create(model="m", max_tokens=5, messages=[user("hi")])
                longer = [user("hi"), {"role": "assistant", "content": first.content[0].text}, user("so")]
                with client.messages.stream(model="m", max_tokens=5, messages=longer) as stream:
                    assert "".join(stream.text_stream) == "two"

            await asyncio.to_thread(talk)
            check_against_log((await server.collect(address.api_key)).sequences[0], engine.log)

    asyncio.run(main())


async def test_tokens_are_counted_and_nothing_is_recorded():
    engine = ScriptedEngine()
    async with served(engine) as server:
        address = await server.open(make_attempt())
        client = client_of(address)
        counted = await client.messages.count_tokens(model="m", messages=[user("hello")], system="x")
        assert counted.input_tokens == len("x\nhello\n") and not engine.log
        first = await client.messages.create(model="m", max_tokens=9, messages=[user("hello")])
        assert first.usage.input_tokens == len("hello\n")
        other = await client.messages.count_tokens(model="m", messages=[user("another history")])
        assert other.input_tokens == len("another history\n")
        assert (await server.inspect(address.api_key))["turns"][0]["kept"]


PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

BAD = {
    "malformed_json": {"data": b"{"},
    "unknown_role": {"json": {"messages": [{"role": "tool", "content": "x"}]}},
    "invalid_request": {"json": {"messages": [{"role": "user", "content": [{"type": "tool_use", "id": "1"}]}]}},
    "tool_result_without_call": {
        "json": {"messages": [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "1"}]}]}
    },
    "nothing_to_answer": {"json": {"messages": [user("x"), {"role": "assistant", "content": "y"}]}},
    "not_renderable": {
        "json": {"messages": [user([{"type": "image", "source": {"type": "base64", "data": PIXEL}}])]},
    },
    "unsupported_stop_sequences": {"json": {"messages": [user("x")], "stop_sequences": ["\n"]}},
    "unsupported_tools": {"json": {"messages": [user("x")], "tools": [{"type": "bash_20250124", "name": "bash"}]}},
    "unsupported_output_format": {"json": {"messages": [user("x")], "output_format": {"type": "json_schema"}}},
}


@pytest.mark.parametrize("code", BAD)
async def test_a_bad_request_is_refused_in_anthropics_shape(code):
    engine = ScriptedEngine()
    async with served(engine) as server:
        address = await server.open(make_attempt())
        status, body, headers = await call(address, path="/messages", **BAD[code])
        assert (status, body["type"], headers["x-should-retry"]) == (400, "error", "false")
        assert (body["error"]["type"], body["error"]["code"]) == ("invalid_request_error", code), body
        assert not engine.log and server.store.faults == {code: 1}
        assert (await call(address, path="/messages", json={"messages": [user("x")]}))[0] == 200


async def test_keys_and_other_faults_have_anthropics_types():
    async with served() as server:
        address = await server.open(make_attempt(), SessionRules("linear"))
        client = client_of(address)
        await client.messages.create(model="m", max_tokens=9, messages=[user("hi")])
        with pytest.raises(anthropic.AuthenticationError) as error:
            await client.with_options(api_key="wrong").messages.create(model="m", max_tokens=9, messages=[user("hi")])
        assert error.value.body["error"]["type"] == "authentication_error"
        with pytest.raises(anthropic.ConflictError):
            await client.messages.create(model="m", max_tokens=9, messages=[user("ho")])
        assert (await client.models.list()).data[0].id == "tiny"
        assert (await client.models.retrieve("tiny")).id == "tiny"


# Conversion is pure: what was sent and comes back is the reply, whatever the reply


words = st.text(max_size=12)
arguments = st.dictionaries(
    words, st.recursive(st.none() | st.booleans() | st.integers() | words, st.lists), max_size=3
)
calls = st.lists(st.tuples(st.sampled_from(["add", "say"]), arguments), max_size=3)


@settings(max_examples=60, deadline=None)
@given(words, words, calls, st.booleans(), st.integers(0, 3))
def test_a_reply_that_was_sent_as_blocks_comes_back_as_itself(content, reasoning, made, spaced, indent):
    spelled = [json.dumps(each, indent=indent or None, ensure_ascii=spaced) for _, each in made]
    reply = normal(
        {
            "role": "assistant",
            "content": content,
            "reasoning_content": reasoning,
            "tool_calls": [
                {"id": f"c{i}", "type": "function", "function": {"name": name, "arguments": text}}
                for i, ((name, _), text) in enumerate(zip(made, spelled, strict=True))
            ],
        }
    )
    sent = json.loads(json.dumps(blocks_of(reply)))
    known = {(1, form): reply for form in forms_of(reply)}
    body = {"messages": [user("q"), {"role": "assistant", "content": sent}, user("go on")]}
    assert read_messages(to_messages(body, lambda before, seen: known.get((len(before), seen))))[1] == reply
    assert form(sent) == forms_of(reply)[0]
    fresh = read_messages(to_messages(body, lambda *seen: None))[1]  # nobody knows it: as it stands
    assert [json.loads(c["function"]["arguments"]) for c in fresh.get("tool_calls", ())] == [each for _, each in made]
    assert fresh.get("reasoning_content", "") == reasoning and fresh["content"].strip() == content.strip()


def test_arguments_that_are_no_object_are_shown_as_they_are():
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "[1]"}}
    (block,) = blocks_of({"role": "assistant", "content": "", "tool_calls": [call]})
    assert block["input"] == {"unparsed_arguments": "[1]"}
