"""Sessions over HTTP alone: opened, looked at, collected and ended by the operator's key."""

from __future__ import annotations

import asyncio

import aiohttp
import openai
import pytest
from serving import check_against_log, served, user

from miles_core import Sampling
from miles_core.session.store import Limits
from miles_core.testing import ScriptedEngine

SAMPLING = Sampling(max_new_tokens=16, stop_tokens=(0,))


async def ask(server, key, method="GET", path="/sessions", **options):
    headers = {"Authorization": f"Bearer {key}", **options.pop("headers", {})}
    root = server.base_url.removesuffix("/v1")
    async with aiohttp.ClientSession() as http, http.request(method, root + path, headers=headers, **options) as found:
        return found.status, await found.json(content_type=None)


async def chat(base_url, key, messages, **options):
    client = openai.AsyncOpenAI(base_url=base_url, api_key=key, max_retries=0)
    return await client.chat.completions.create(model="m", messages=messages, **options)


async def test_a_session_from_its_opening_to_its_end():
    engine = ScriptedEngine()
    async with served(engine) as server:
        operator = server.operated(SAMPLING)
        status, opened = await ask(server, operator.key, "POST", json={"temperature": 0.5, "metadata": {"a": 1}})
        assert status == 201 and opened["id"] == "s0" and opened["base_url"].endswith("/sessions/s0/v1")
        first = await chat(opened["base_url"], opened["api_key"], [user("hi")])
        history = [user("hi"), first.choices[0].message.model_dump(), user("so")]
        await chat(opened["base_url"], opened["api_key"], history)
        _, listing = await ask(server, operator.key)
        assert [(s["id"], s["turns"], s["busy"]) for s in listing["sessions"]] == [("s0", 2, False)]
        _, seen = await ask(server, opened["api_key"], path="/sessions/s0")
        assert len(seen["turns"]) == 2 and opened["api_key"] not in str(seen)
        _, collected = await ask(server, operator.key, path="/sessions/s0/trajectory")
        expected = (await server.collect(opened["api_key"])).sequences[0]
        check_against_log(expected, engine.log)
        (sequence,) = collected["sequences"]
        assert sequence["tokens"] == expected.tokens.tolist() and sequence["logprobs"] == expected.logprobs.tolist()
        assert sequence["sampled"] == expected.sampled.astype(int).tolist()
        assert sequence["versions"] == expected.versions.tolist() and sequence["spans"][0]["temperature"] == 0.5
        assert await ask(server, operator.key, "DELETE", "/sessions/s0") == (200, collected)
        status, gone = await ask(server, operator.key, path="/sessions/s0")
        assert (status, gone["error"]["code"]) == (410, "session_gone")
        with pytest.raises(openai.APIStatusError, match="closed"):
            await chat(opened["base_url"], opened["api_key"], history)


@pytest.mark.parametrize("where", ["header", "body", "metadata", "path"])
async def test_the_operators_key_opens_the_session_that_a_call_names(where):
    engine = ScriptedEngine()
    named = {
        "header": {"extra_headers": {"X-Session-ID": "trace-1"}},
        "body": {"extra_body": {"session_id": "trace-1"}},
        "metadata": {"metadata": {"session_id": "trace-1"}},
        "path": {},
    }[where]
    async with served(engine) as server:
        operator = server.operated(SAMPLING)
        base = server.base_url.replace("/v1", "/sessions/trace-1/v1" if where == "path" else "/v1")
        first = await chat(base, operator.key, [user("hi")], **named)
        history = [user("hi"), first.choices[0].message.model_dump(), user("so")]
        await chat(base, operator.key, history, **named)
        _, collected = await ask(server, operator.key, path="/sessions/trace-1/trajectory")
        assert collected["turns"] == 2
        with pytest.raises(openai.BadRequestError) as error:
            await chat(server.base_url, operator.key, history)
        assert error.value.code == "session_not_named"
        await ask(server, operator.key, "DELETE", "/sessions/trace-1")
        with pytest.raises(openai.APIStatusError) as gone:  # a name that has ended does not begin anew by itself
            await chat(base, operator.key, history, **named)
        assert gone.value.status_code == 410
        assert (await ask(server, operator.key, "POST", json={"name": "trace-1"}))[0] == 201
        assert (await ask(server, operator.key, "POST", json={"name": "trace-1"}))[0] == 409


async def test_a_sessions_own_key_is_not_the_operators():
    async with served() as server:
        operator = server.operated(SAMPLING)
        _, mine = await ask(server, operator.key, "POST")
        _, other = await ask(server, operator.key, "POST")
        for method, path in (
            ("GET", "/sessions"),
            ("POST", "/sessions"),
            ("GET", f"/sessions/{other['id']}"),
            ("GET", f"/sessions/{other['id']}/trajectory"),
            ("DELETE", f"/sessions/{mine['id']}"),
        ):
            status, body = await ask(server, mine["api_key"], method, path)
            assert (status, body["error"]["code"]) == (403, "not_allowed")
        assert (await ask(server, "guessed", "POST"))[0] == 401
        # named beside a session's own key, a session is that of the key
        await chat(mine["base_url"], mine["api_key"], [user("hi")], extra_headers={"X-Session-ID": other["id"]})
        assert (await ask(server, operator.key, path=f"/sessions/{other['id']}"))[1]["turns"] == []


async def test_without_an_operator_there_is_no_life_cycle_over_http():
    async with served() as server:
        assert (await ask(server, "anything", "POST"))[0] == 401


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ({"histori": "linear"}, "`histori` is not known"),
        ({"history": "forest"}, "linear, branching"),
        ({"matcher": "loose"}, "strict, tool-arguments, role-content"),
        ({"name": "a b"}, "no name of a session"),
        ({"name": "messages"}, "a route, and no name"),
        ({"temperature": -1}, "`temperature`"),
        ({"max_new_tokens": 0}, "`max_new_tokens`"),
        ({"metadata": []}, "`metadata`"),
    ],
)
async def test_bad_wishes_are_told(body, what):
    async with served() as server:
        operator = server.operated(SAMPLING)
        status, told = await ask(server, operator.key, "POST", json=body)
        assert status == 400 and what in told["error"]["message"], told
        assert (await ask(server, operator.key))[1] == {"sessions": [], "faults": {"invalid_request": 1}}


async def test_limits_are_told_and_idle_sessions_end_by_themselves():
    ended = []
    async with served(limits=Limits(sessions=2, idle_seconds=0.2, body_bytes=10_000)) as server:
        server.store.ended = lambda session, why: ended.append((session.id, why.partition(":")[0]))
        operator = server.operated(SAMPLING)
        for _ in range(2):
            assert (await ask(server, operator.key, "POST"))[0] == 201
        status, body = await ask(server, operator.key, "POST")
        assert (status, body["error"]["code"]) == (429, "too_many_sessions")
        status, body = await ask(server, operator.key, "POST", data=b"x" * 20_000)
        assert (status, body["error"]["code"]) == (413, "body_too_large")
        while len(ended) < 2:
            await asyncio.sleep(0.02)
        assert ended == [("s0", "expired"), ("s1", "expired")]
        assert (await ask(server, operator.key, path="/sessions/s1"))[0] == 410
        assert (await ask(server, operator.key, path="/sessions/s9"))[0] == 404
