"""What goes wrong: bad calls, bad clients, bad engines, limits. Each is told in the client's own shape, and counted,
and the session is as it was."""

from __future__ import annotations

import asyncio

import openai
import pytest
from serving import call, check_against_log, client_of, served, user

from miles_core import MilesError, PauseMode, RequestError, SessionRules
from miles_core.session.call import ChatRequest
from miles_core.session.faults import SessionFault
from miles_core.session.store import Limits, SessionStore
from miles_core.testing import CharRenderer, ManualClock, ScriptedEngine, make_attempt


async def test_a_history_that_edits_the_past_is_told_where():
    async with served() as server:
        address = await server.open(make_attempt())
        client = client_of(address, max_retries=2)
        completion = await client.chat.completions.create(model="m", messages=[user("hello there")])
        edited = {**completion.choices[0].message.model_dump(), "content": "something else"}
        with pytest.raises(openai.ConflictError) as error:
            await client.chat.completions.create(model="m", messages=[user("hello there"), edited, user("x")])
        assert "message 1 (assistant): `content` differs" in error.value.message
        assert "'something else'" in error.value.message
        assert server.store.faults["history_diverged"] == 1  # the client was told not to retry


BAD = {
    "malformed_json": {"data": b'{"messages": ['},
    "invalid_request": {"json": {"messages": "hi"}},
    "unknown_role": {"json": {"messages": [{"role": "wizard", "content": "x"}]}},
    "tool_result_without_call": {
        "json": {"messages": [user("x"), {"role": "tool", "tool_call_id": "1", "content": "y"}]}
    },
    "nothing_to_answer": {"json": {"messages": [user("x"), {"role": "assistant", "content": "y"}]}},
    "not_renderable": {"json": {"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}},
    "unsupported_n": {"json": {"messages": [user("x")], "n": 2}},
    "unsupported_stop": {"json": {"messages": [user("x")], "stop": ["\n"]}},
    "unsupported_tools": {"json": {"messages": [user("x")], "tools": [{"type": "web_search"}]}},
}


DEEP = "[" * 600 + "]" * 600
CALLS = '{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": %s}}]}'
UNREADABLE = {
    "half a surrogate pair, '\\ud83d'": b'{"messages": [{"role": "user", "content": "\\ud83d"}]}',
    "half a surrogate pair, '\\udc00'": b'{"messages": [], "\\udc00": 1}',
    "is beyond the largest number": b'{"messages": [{"role": "user", "content": "x"}], "metadata": {"x": 1e999}}',
    "more than 100 levels": b'{"messages": [{"role": "user", "content": "x"}], "metadata": %s}' % DEEP.encode(),
    "the `text` of a part is null": b'{"messages": [{"role": "user", "content": [{"type": "text"}]}]}',
    "the arguments of tool call 'f'": (
        '{"messages": [%s, {"role": "user", "content": "x"}]}' % (CALLS % f'"{DEEP}"')
    ).encode(),
}


@pytest.mark.parametrize("said", UNREADABLE)
async def test_what_nobody_behind_could_read_is_the_clients_fault_and_breaks_no_session(said):
    async with served() as server:
        address = await server.open(make_attempt())
        status, body, _ = await call(address, data=UNREADABLE[said])
        assert status == 400 and said in body["error"]["message"]
        assert (await call(address, json={"messages": [user("x")]}))[0] == 200


@pytest.mark.parametrize("code", BAD)
async def test_a_bad_request_is_refused_in_the_clients_own_shape(code):
    engine = ScriptedEngine()
    async with served(engine) as server:
        address = await server.open(make_attempt())
        status, body, headers = await call(address, **BAD[code])
        assert (status, body["error"]["code"], headers["x-should-retry"]) == (400, code, "false")
        assert body["error"]["type"] == "invalid_request_error" and len(body["error"]["message"]) > 10
        assert not engine.log and not (await server.collect(address.api_key)).sequences
        assert server.store.faults == {code: 1}
        status, body, _ = await call(address, json={"messages": [user("x")]})
        assert status == 200


@pytest.mark.parametrize(
    "more",
    [
        {"temperature": "hot"},
        {"temperature": -1},
        {"temperature": 1e-30},
        {"temperature": 1e30},
        {"max_tokens": 0},
        {"seed": True},
        {"stream": 1},
    ],
)
async def test_values_of_the_wrong_type_are_named(more):
    async with served() as server:
        address = await server.open(make_attempt())
        status, body, _ = await call(address, json={"messages": [user("x")], **more})
        assert status == 400 and f"`{next(iter(more))}`" in body["error"]["message"]


@pytest.mark.parametrize(
    "body",
    [b'{"messages": [], "temperature": NaN}', b"[]", b"", b'{"content": "\xff"}', b'{"seed": ' + b"9" * 5000 + b"}"],
)
async def test_what_is_no_json_is_told(body):
    async with served() as server:
        status, told, _ = await call(await server.open(make_attempt()), data=body)
        assert (status, told["error"]["code"]) == (400, "malformed_json")


async def test_deeply_nested_json_and_odd_text_do_not_break_it():
    async with served() as server:
        address = await server.open(make_attempt())
        assert (await call(address, data=b"[" * 100_000))[0] == 400
        assert (await call(address, data=b'{"messages": [{"role": "user", "content": "\\ud800"}]}'))[0] == 400
        assert (await call(address, json={"messages": [user("x")]}))[0] == 200


async def test_a_body_that_is_too_large_is_refused_without_being_kept():
    async with served(limits=Limits(body_bytes=1_000_000)) as server:
        address = await server.open(make_attempt())
        status, body, _ = await call(address, data=b"x" * 10_000_000)
        assert (status, body["error"]["code"]) == (413, "body_too_large")
        assert (await call(address, json={"messages": [user("x")]}))[0] == 200


async def test_a_session_answers_only_to_its_own_key(caplog):
    caplog.set_level("DEBUG")
    async with served() as server:
        address = await server.open(make_attempt())
        client = client_of(address)
        await client.chat.completions.create(model="m", messages=[user("hi")])
        with pytest.raises(openai.AuthenticationError) as error:
            await client.with_options(api_key="wrong").chat.completions.create(model="m", messages=[user("hi")])
        assert error.value.code == "invalid_api_key"
        status, _, _ = await call(
            address, json={"messages": [user("hi")]}, headers={"Authorization": "", "x-api-key": address.api_key}
        )
        assert status == 200
        await server.close(address.api_key)
        await server.close(address.api_key)
        with pytest.raises(openai.APIStatusError) as gone:
            await client.chat.completions.create(model="m", messages=[user("hi")])
        assert (gone.value.status_code, gone.value.code) == (410, "session_gone")
        with pytest.raises(MilesError, match="closed"):
            await server.collect(address.api_key)
        assert address.api_key not in repr(address)
    ours = [record for record in caplog.records if record.name.startswith(("miles", "uvicorn"))]
    assert not any(address.api_key in record.getMessage() for record in ours)


async def test_a_client_that_leaves_cancels_its_generation_and_leaves_no_half_turn():
    engine = ScriptedEngine()
    async with served(engine) as server:
        address = await server.open(make_attempt())
        engine.hang()
        leaving = asyncio.create_task(call(address, json={"messages": [user("hi")]}))
        while not engine.log:
            await asyncio.sleep(0.01)
        leaving.cancel()
        await asyncio.gather(leaving, return_exceptions=True)
        while (await engine.stats()).running:
            await asyncio.sleep(0.01)
        assert not (await server.collect(address.api_key)).sequences
        engine.hang(False)
        await client_of(address).chat.completions.create(model="m", messages=[user("hi")])
        check_against_log((await server.collect(address.api_key)).sequences[0], engine.log[1:])
        assert server.store.faults["client_left"] == 1


async def test_an_aborted_turn_may_be_asked_again():
    engine = ScriptedEngine(["abcdefgh", "xy"])
    async with served(engine) as server:
        address = await server.open(make_attempt())
        engine.hang()
        asking = asyncio.create_task(call(address, json={"messages": [user("hi")]}))
        while not engine.log:
            await asyncio.sleep(0.01)
        await engine.pause(PauseMode.ABORT)
        engine.hang(False)
        status, body, headers = await asking
        assert (status, body["error"]["code"], headers["x-should-retry"]) == (503, "generation_aborted", "true")
        await engine.resume()
        await client_of(address).chat.completions.create(model="m", messages=[user("hi")])
        check_against_log((await server.collect(address.api_key)).sequences[0], engine.log[1:])


@pytest.mark.parametrize("how", ["die", "drop_logprobs", "go_back"])
async def test_a_broken_engine_is_told_to_the_client_and_to_whoever_watches(how):
    engine = ScriptedEngine(version=5)
    async with served(engine) as server:
        address = await server.open(make_attempt())
        client = client_of(address)
        first = await client.chat.completions.create(model="m", messages=[user("hi")])
        watching = asyncio.create_task(server.watch(address.api_key))
        await asyncio.sleep(0)
        engine.die() if how == "die" else engine.drop_logprobs() if how == "drop_logprobs" else engine.go_back(3)
        longer = [user("hi"), first.choices[0].message.model_dump(), user("go on")]
        with pytest.raises(openai.InternalServerError) as error:
            await client.chat.completions.create(model="m", messages=longer)
        assert (error.value.status_code, error.value.code) == (502, "engine_failed")
        with pytest.raises(MilesError, match="died" if how == "die" else "broke its contract"):
            await watching
        collected = await server.collect(address.api_key)
        check_against_log(collected.sequences[0], engine.log[:1])  # as it was


async def test_closing_a_session_ends_its_calls():
    engine = ScriptedEngine()
    async with served(engine) as server:
        address = await server.open(make_attempt())
        engine.hang()
        asking = asyncio.create_task(call(address, json={"messages": [user("hi")]}))
        while not engine.log:
            await asyncio.sleep(0.01)
        await server.close(address.api_key)
        status, body, _ = await asking
        assert (status, body["error"]["code"]) == (410, "session_gone")
        assert (await engine.stats()).running == 0


async def test_limits_are_kept_and_idle_sessions_end():
    clock = ManualClock()
    limits = Limits(sessions=2, nodes=2, idle_seconds=100)
    store = SessionStore(ScriptedEngine(), CharRenderer(), clock, 4096, limits)
    first, second = store.open(make_attempt()), store.open(make_attempt())
    with pytest.raises(SessionFault, match="2 sessions are open") as fault:
        store.open(make_attempt())
    assert (fault.value.status, fault.value.retry) == (429, True)
    for _ in range(2):
        await store.find(first).chat(ChatRequest((user("x"),)))
    with pytest.raises(SessionFault, match="2 turns"):
        await store.find(first).chat(ChatRequest((user("x"),)))
    await clock.advance(60)
    store.find(second)
    await clock.advance(60)
    with pytest.raises(SessionFault, match="expired") as fault:
        store.find(first)
    assert fault.value.status == 410 and len(store) == 1
    store.open(make_attempt())
    with pytest.raises(RequestError, match="no session policy"):
        store.open(make_attempt(), SessionRules("forest"))
