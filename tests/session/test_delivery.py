"""How answers travel: streams that are kept alive, clients that leave, turns that nobody got. Over real sockets."""

from __future__ import annotations

import asyncio
import json
import random
import socket
import time

import aiohttp
import anthropic
import openai
import pytest
from serving import call, check_against_log, client_of, served, user

from miles_core import RealClock, SessionRules
from miles_core.session.call import ChatRequest
from miles_core.session.store import Limits, SessionStore
from miles_core.testing import CharRenderer, ScriptedEngine, make_attempt

PATIENT = Limits(beat_seconds=0.05)
LONG = 1_000_000
"""Characters of a message whose token ids, sent back, are more than sockets hold."""


async def waiting(engine, count=1):
    while (await engine.stats()).running < count:
        await asyncio.sleep(0.005)


async def test_a_slow_turn_keeps_its_stream_alive():
    engine = ScriptedEngine(["abc"])
    async with served(engine, limits=PATIENT) as server:
        address = await server.open(make_attempt())
        engine.hang()
        asking = asyncio.create_task(
            client_of(address).chat.completions.create(model="m", messages=[user("hi")], stream=True)
        )
        stream = await asking  # the answer has begun although nothing was sampled
        assert not engine.log[0].tokens
        await asyncio.sleep(0.2)
        engine.hang(False)
        assert "".join([chunk.choices[0].delta.content or "" async for chunk in stream]) == "abc"
        check_against_log((await server.collect(address.api_key)).sequences[0], engine.log)


@pytest.mark.parametrize("dialect", ["chat", "anthropic", "responses"])
async def test_what_fails_inside_a_stream_is_told_in_it(dialect):
    engine = ScriptedEngine()
    async with served(engine, limits=PATIENT) as server:
        address = await server.open(make_attempt())
        engine.hang()
        root = address.base_url.removesuffix("/v1")
        theirs = anthropic.AsyncAnthropic(base_url=root, api_key=address.api_key, max_retries=0)
        ours = client_of(address)
        asked = {"model": "m", "stream": True}
        stream = await {
            "chat": lambda: ours.chat.completions.create(messages=[user("hi")], **asked),
            "responses": lambda: ours.responses.create(input="hi", **asked),
            "anthropic": lambda: theirs.messages.create(messages=[user("hi")], max_tokens=9, **asked),
        }[dialect]()
        engine.die()
        with pytest.raises((openai.APIError, anthropic.APIStatusError), match="died"):
            async for _ in stream:
                pass
        assert server.store.faults["engine_failed"] == 1
        assert not (await server.collect(address.api_key)).sequences


async def test_an_engine_that_hangs_is_given_up():
    engine = ScriptedEngine()
    async with served(engine, limits=Limits(call_seconds=0.1, beat_seconds=0.04)) as server:
        address = await server.open(make_attempt())
        engine.hang()
        status, body, headers = await call(address, json={"messages": [user("hi")]})
        assert (status, body["error"]["code"], headers["x-should-retry"]) == (504, "engine_timeout", "true")
        status, body, _ = await call(address, path="/messages", json={"messages": [user("hi")]})
        assert (status, body["error"]["type"]) == (504, "timeout_error")
        with pytest.raises(openai.APIError, match="not sampled in"):
            async for _ in await client_of(address).chat.completions.create(
                model="m", messages=[user("hi")], stream=True
            ):
                pass
        assert (await engine.stats()).running == 0 and server.store.faults["engine_timeout"] == 3
        engine.hang(False)
        assert (await call(address, json={"messages": [user("hi")]}))[0] == 200
        check_against_log((await server.collect(address.api_key)).sequences[0], engine.log[3:])


def raw_call(address, body) -> socket.socket:
    """A connection that has asked and reads nothing: its window is small, so the answer fills it."""
    host, port = address.base_url.removeprefix("http://").removesuffix("/v1").split(":")
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.connect((host, int(port)))
    data = json.dumps(body).encode()
    head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\nauthorization: Bearer {address.api_key}\r\n"
    sock.sendall(f"{head}content-length: {len(data)}\r\n\r\n".encode() + data)
    return sock


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("policy", ["linear", "branching"])
async def test_a_turn_that_the_client_did_not_get_does_not_stand(policy, stream):
    engine = ScriptedEngine(["first", "lost", "again"], context=2 * LONG)
    async with served(engine, context=2 * LONG) as server:
        address = await server.open(make_attempt(), SessionRules(policy))
        first = await client_of(address).chat.completions.create(model="m", messages=[user("hi")])
        history = [user("hi"), first.choices[0].message.model_dump(), user("x" * LONG)]
        body = {"messages": history, "stream": stream, "return_token_ids": True}
        sock = await asyncio.to_thread(raw_call, address, body)
        session = server.store.find(address.api_key)
        while len(session.conversation.tree) < 2:
            await asyncio.sleep(0.01)
        await asyncio.to_thread(sock.recv, 100)
        sock.close()
        end = time.monotonic() + 5
        while not server.store.faults["client_left"] and time.monotonic() < end:
            await asyncio.sleep(0.01)
        collected = await server.collect(address.api_key)
        check_against_log(collected.sequences[0], engine.log[:1])
        assert (len(collected.sequences), collected.facts["dropped_tokens"]) == (1, len("lost") + 1)
        # another way on is open, as if it had not been asked
        other = [*history[:2], user("otherwise")]
        await client_of(address).chat.completions.create(model="m", messages=other)
        collected = await server.collect(address.api_key)
        check_against_log(collected.sequences[0], [engine.log[0], engine.log[2]])
        assert len(collected.sequences) == 1


async def test_a_turn_that_had_arrived_after_all_is_gone_on_from():
    engine = ScriptedEngine(["first", "second"])
    async with served(engine) as server:
        address = await server.open(make_attempt())
        session = server.store.find(address.api_key)
        first = await client_of(address).chat.completions.create(model="m", messages=[user("hi")])
        session.conversation.tree.withdraw(session.conversation.tree.nodes[0])
        assert not (await server.collect(address.api_key)).sequences
        history = [user("hi"), first.choices[0].message.model_dump(), user("go on")]
        await client_of(address).chat.completions.create(model="m", messages=history)
        check_against_log((await server.collect(address.api_key)).sequences[0], engine.log)


async def test_a_client_that_leaves_a_stream_before_its_turn_is_sampled_cancels_it():
    engine = ScriptedEngine()
    async with served(engine, limits=PATIENT) as server:
        address = await server.open(make_attempt())
        engine.hang()
        headers = {"Authorization": f"Bearer {address.api_key}"}
        async with aiohttp.ClientSession() as http:
            body = {"messages": [user("hi")], "stream": True}
            async with http.post(address.base_url + "/chat/completions", json=body, headers=headers) as response:
                assert (await response.content.readline()).startswith(b":")
        while (await engine.stats()).running:
            await asyncio.sleep(0.01)
        assert not (await server.collect(address.api_key)).sequences
        while not server.store.faults["client_left"]:
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("policy", ["linear", "branching"])
async def test_random_losses_leave_what_the_harness_believes(policy, seed):
    """Turns are asked, asked again, lost, lost and found: what is trained on is the line that the harness knows of."""
    rng, engine, clock = random.Random(seed), ScriptedEngine(context=10**6), RealClock()
    store = SessionStore(engine, CharRenderer(), clock, 10**6, Limits(nodes=10**6))
    session = store.find(store.open(make_attempt(), SessionRules(policy)))
    history: tuple = ()
    line, asked, lost = [], (), 0
    for step in range(120):
        what = rng.choice(["extend", "extend", "again", "lose", "lose again", "find"])
        again = what in ("again", "lose again") and bool(asked)
        messages = asked if again else (*history, user(f"{step} {rng.random()}"))
        reply = await session.chat(ChatRequest(messages))
        if what.startswith("lose"):
            session.withdraw(reply)
            lost += 1
            continue
        line = [*(line[:-1] if again else line), engine.log[-1]]
        asked, history = messages, (*messages, reply.node.reply)
        if what == "find":
            session.withdraw(reply)  # the harness has it all the same, and goes on
            asked = (*history, user("found"))
            reply = await session.chat(ChatRequest(asked))
            line.append(engine.log[-1])
            history = (*asked, reply.node.reply)
        if policy == "linear":
            check_against_log(session.collect().sequences[0], line)
    assert lost > 20
    longest = max(session.collect().sequences, key=len)
    check_against_log(longest, line)
