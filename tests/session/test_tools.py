"""Tools in a session: fixed at the root, calls with ids, results in any order, reasoning kept or dropped, matchers."""

from __future__ import annotations

import json

import numpy as np
import pytest
from serving import call, check_against_log, client_of, served, user

from miles_core import PluginError
from miles_core.contracts.sessions import SessionRules
from miles_core.session.faults import SessionFault
from miles_core.session.matching import MATCHERS, CheckedMatcher
from miles_core.session.messages import normal
from miles_core.session.tools import read_tools, with_call_ids
from miles_core.testing import CharToolRenderer, ScriptedEngine, make_attempt
from miles_core.types.sampling import Sampling

ADD = {
    "type": "function",
    "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}, "strict": True},
}
SUB = {"type": "function", "function": {"name": "sub"}}
LONG = make_attempt(sampling=Sampling(max_new_tokens=200))


def said(*calls):
    return "".join(f"<call>{name} {arguments}</call>" for name, arguments in calls)


def tools_served(answers, **options):
    return served(ScriptedEngine(answers), CharToolRenderer(), **options)


async def asked(server, address, messages, **body):
    return await call(address, json={"model": "m", "messages": messages, "tools": [ADD], **body})


# Tools


@pytest.mark.parametrize(
    ("given", "code", "named"),
    [
        ("add", "invalid_request", "`tools` is str"),
        ([{"type": "web_search"}], "unsupported_tools", "'web_search'"),
        (["add"], "unsupported_tools", "tool 0"),
        ([ADD, {"type": "function", "function": {}}], "invalid_request", "tool 1"),
        ([{"type": "function", "function": {"name": "f", "parameters": []}}], "invalid_request", "`parameters`"),
        ([{"type": "function", "function": {"name": "f", "description": 1}}], "invalid_request", "`description`"),
        ([ADD, SUB, ADD], "invalid_request", "the name 'add'"),
    ],
)
def test_what_is_wrong_with_a_tool_is_named(given, code, named):
    with pytest.raises(SessionFault) as fault:
        read_tools(given)
    assert (fault.value.status, fault.value.code) == (400, code) and named in str(fault.value)


def test_only_what_a_renderer_reads_counts():
    (tool,) = read_tools([{**ADD, "cache_control": {}}])
    assert tool == {
        "type": "function",
        "function": {"name": "add", "description": "Adds.", "parameters": {"type": "object"}},
    }
    assert read_tools(None) == read_tools([]) == ()


@pytest.mark.parametrize(
    ("others", "named"),
    [
        ([], "the session has add, the request none"),
        ([ADD, SUB], "the session has add, the request add, sub"),
        ([{**ADD, "function": {**ADD["function"], "description": "Sums."}}], "'add' has another description"),
    ],
)
async def test_a_linear_session_keeps_its_tools(others, named):
    async with tools_served(["1", "2", "3"]) as server:
        address = await server.open(LONG)
        assert (await asked(server, address, [user("x")]))[0] == 200
        history = [user("x"), {"role": "assistant", "content": "1"}, user("y")]
        for messages in (history, [user("x")]):
            status, body, _ = await asked(server, address, messages, tools=others)
            assert (status, body["error"]["code"]) == (409, "history_diverged") and named in body["error"]["message"]
        assert (await asked(server, address, history))[0] == 200
        assert len((await server.collect(address.api_key)).sequences) == 1


async def test_other_tools_are_another_root_of_a_branching_session():
    engine = ScriptedEngine(["1", "2", "3", "4"])
    async with served(engine, CharToolRenderer()) as server:
        address = await server.open(LONG, SessionRules("branching"))
        history = [user("x"), {"role": "assistant", "content": "1"}, user("y")]
        for messages, tools in (([user("x")], [ADD]), (history, [ADD]), (history, [SUB]), ([user("x")], [SUB])):
            assert (await asked(server, address, messages, tools=tools))[0] == 200
        collected = await server.collect(address.api_key)
    assert len(collected.sequences) == 3
    assert sum(sequence.sampled_count for sequence in collected.sequences) == 8
    assert collected.facts == {"turns": 4}


async def test_a_format_without_tools_says_so():
    async with served() as server:
        address = await server.open(LONG)
        status, body, _ = await asked(server, address, [user("x")])
        assert (status, body["error"]["code"]) == (400, "not_renderable")
        assert "no tools" in body["error"]["message"]


async def test_what_nobody_can_force_is_counted():
    async with tools_served(["1"]) as server:
        address = await server.open(LONG)
        await asked(server, address, [user("x")], tool_choice="required", parallel_tool_calls=False)
        assert (await server.collect(address.api_key)).facts["ignored"] == {"tool_choice": 1, "parallel_tool_calls": 1}
        for key in ("functions", "function_call"):
            status, body, _ = await asked(server, address, [user("x")], **{key: [1]})
            assert (status, body["error"]["code"]) == (400, f"unsupported_{key}")


# Calls and results


async def test_the_official_client_calls_tools_in_parallel_and_answers_in_any_order():
    engine = ScriptedEngine(["so " + said(("add", '{"a":1}'), ("add", '{"a": 2}')), "3"])
    async with served(engine, CharToolRenderer()) as server:
        address = await server.open(LONG)
        client = client_of(address)
        messages = [user("x")]
        completion = await client.chat.completions.create(model="m", messages=messages, tools=[ADD])
        choice = completion.choices[0]
        assert (choice.finish_reason, choice.message.content) == ("tool_calls", "so ")
        first, second = choice.message.tool_calls
        assert (first.function.arguments, second.function.arguments) == ('{"a":1}', '{"a": 2}')
        assert first.id != second.id
        results = [{"role": "tool", "tool_call_id": c.id, "content": t} for c, t in ((second, "two"), (first, "one"))]
        messages += [choice.message.model_dump(exclude_none=True), *results]
        completion = await client.chat.completions.create(model="m", messages=messages, tools=[ADD])
        assert completion.choices[0].message.content == "3"
        (sequence,) = (await server.collect(address.api_key)).sequences
    check_against_log(sequence, engine.log)
    assert CharToolRenderer().decode(sequence.tokens).endswith("\0\ntwo\none\n3\0")


async def test_a_streamed_call_is_the_same():
    async with tools_served([said(("add", "{}"), ("sub", "{}"))]) as server:
        client = client_of(await server.open(LONG))
        chunks = [
            chunk
            async for chunk in await client.chat.completions.create(
                model="m", messages=[user("x")], tools=[ADD, SUB], stream=True
            )
        ]
    deltas = [call for chunk in chunks for choice in chunk.choices for call in choice.delta.tool_calls or ()]
    assert [(each.index, each.function.name, each.function.arguments) for each in deltas if each.function.name] == [
        (0, "add", "{}"),
        (1, "sub", "{}"),
    ]
    assert "tool_calls" in {choice.finish_reason for chunk in chunks for choice in chunk.choices}


async def test_a_result_without_its_call_is_refused():
    async with tools_served([said(("add", "{}")), "x"]) as server:
        address = await server.open(LONG)
        _, body, _ = await asked(server, address, [user("x")])
        message = body["choices"][0]["message"]
        stray = {"role": "tool", "tool_call_id": "call_of_another", "content": "2"}
        status, body, _ = await asked(server, address, [user("x"), message, stray])
        assert (status, body["error"]["code"]) == (400, "tool_result_without_call")
        good = {**stray, "tool_call_id": message["tool_calls"][0]["id"]}
        assert (await asked(server, address, [user("x"), message, good]))[0] == 200


def test_ids_of_the_format_are_kept_and_others_are_made():
    tokens = np.arange(3, dtype=np.int32)
    reply = {"role": "assistant", "content": "", "tool_calls": [{"function": {}}, {"id": "own:0", "function": {}}]}
    first = with_call_ids(reply, 0, 0, tokens, tokens)
    made, own = (each["id"] for each in first["tool_calls"])
    assert own == "own:0" and made.startswith("call_")
    assert with_call_ids(reply, 0, 0, tokens, tokens) == first
    others = [with_call_ids(reply, *place, tokens, tokens)["tool_calls"][0]["id"] for place in ((1, 0), (0, 1))]
    assert len({made, *others}) == 3
    assert with_call_ids({"role": "assistant", "content": ""}, 0, 0, tokens, tokens).keys() == {"role", "content"}


# Replays


@pytest.mark.parametrize("matcher", MATCHERS)
async def test_reasoning_may_be_dropped_and_stays_in_the_tokens(matcher):
    engine = ScriptedEngine(["<think>hm</think>1", "2"])
    async with served(engine, CharToolRenderer()) as server:
        address = await server.open(LONG, SessionRules(matcher=MATCHERS[matcher]()))
        _, body, _ = await asked(server, address, [user("x")])
        message = body["choices"][0]["message"]
        assert message["reasoning_content"] == "hm"
        dropped = {"role": "assistant", "content": message["content"]}
        assert (await asked(server, address, [user("x"), dropped, user("y")]))[0] == 200
        (sequence,) = (await server.collect(address.api_key)).sequences
    check_against_log(sequence, engine.log)
    assert "<think>hm</think>1" in CharToolRenderer().decode(sequence.tokens)


@pytest.mark.parametrize("replayed", [{"reasoning_content": "other"}, {"content": "2"}])
@pytest.mark.parametrize("matcher", ["strict", "tool-arguments"])
def test_changed_reasoning_and_what_stands_beside_dropped_one_still_differ(matcher, replayed):
    stored = normal({"role": "assistant", "content": "1", "reasoning_content": "hm"})
    assert not MATCHERS[matcher]().matches(stored, normal({"role": "assistant", "content": "1", **replayed}))
    assert MATCHERS[matcher]().matches(stored, normal({"role": "assistant", "content": "1"}))


@pytest.mark.parametrize(("matcher", "status"), [("strict", 409), ("tool-arguments", 200), ("role-content", 200)])
async def test_arguments_spelled_anew(matcher, status):
    engine = ScriptedEngine([said(("add", '{"a":1,"b":2}')), "3"])
    async with served(engine, CharToolRenderer()) as server:
        address = await server.open(LONG, SessionRules(matcher=MATCHERS[matcher]()))
        _, body, _ = await asked(server, address, [user("x")])
        message = body["choices"][0]["message"]
        arguments = json.loads(message["tool_calls"][0]["function"]["arguments"])
        message["tool_calls"][0]["function"]["arguments"] = json.dumps(dict(reversed(arguments.items())), indent=2)
        result = {"role": "tool", "tool_call_id": message["tool_calls"][0]["id"], "content": "3"}
        found, body, _ = await asked(server, address, [user("x"), message, result])
        assert found == status
        if status == 409:
            assert "message 1" in body["error"]["message"] and "`tool_calls`" in body["error"]["message"]
            return
        (sequence,) = (await server.collect(address.api_key)).sequences
    check_against_log(sequence, engine.log)


# Matchers of plugins


class Shouting:
    """Without regard to case."""

    def matches(self, stored, replayed):
        return stored["content"].lower() == replayed["content"].lower()


class Undecided:
    def matches(self, stored, replayed):
        return 1


class Raising:
    def matches(self, stored, replayed):
        raise KeyError("content")


async def test_a_custom_matcher_decides():
    async with tools_served(["Hi", "2"]) as server:
        address = await server.open(LONG, SessionRules(matcher=Shouting()))
        await asked(server, address, [user("x")])
        messages = [user("X"), {"role": "assistant", "content": "hI"}, user("y")]
        assert (await asked(server, address, messages))[0] == 200


@pytest.mark.parametrize(("matcher", "why"), [(Undecided(), "answered 1"), (Raising(), "KeyError")])
async def test_a_matcher_that_does_not_decide_is_named_and_changes_nothing(matcher, why):
    with pytest.raises(PluginError, match=why):
        CheckedMatcher(matcher).matches({}, {})
    async with tools_served(["1", "2"]) as server:
        address = await server.open(LONG, SessionRules(matcher=matcher))
        await asked(server, address, [user("x")])
        before = await server.inspect(address.api_key)
        messages = [user("x"), {"role": "assistant", "content": "1"}, user("y")]
        status, body, _ = await asked(server, address, messages)
        assert status == 502 and type(matcher).__name__ in body["error"]["message"]
        assert await server.inspect(address.api_key) == before


def test_arguments_given_as_an_object_become_text():
    reply = normal({"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": {"é": 1}}}]})
    assert reply["tool_calls"][0]["function"]["arguments"] == '{"é": 1}'
