"""The official client against a served session: every token is kept as the engine gave it."""

from __future__ import annotations

import asyncio
import json
import random

import aiohttp
import openai
import pytest
from serving import call, check_against_log, client_of, served, user

from miles_core import Sampling, SessionRules
from miles_core.testing import ScriptedEngine, make_attempt


async def test_the_official_client_talks_several_turns_and_every_token_is_kept():
    engine = ScriptedEngine()
    async with served(engine) as server:
        address = await server.open(make_attempt())
        client = client_of(address)
        messages = [{"role": "developer", "content": "be kind"}, user("hello")]
        for turn in range(5):
            completion = await client.chat.completions.create(model="any", messages=messages)
            choice = completion.choices[0]
            assert (choice.finish_reason, choice.message.role) == ("stop", "assistant")
            assert completion.usage.completion_tokens == len(engine.log[-1].tokens)
            assert completion.usage.prompt_tokens == len(engine.log[-1].prompt)
            messages += [choice.message.model_dump(), user(f"and {turn}?")]
        collected = await server.collect(address.api_key)
    (sequence,) = collected.sequences
    check_against_log(sequence, engine.log)
    assert (collected.turns, collected.truncated, collected.text) == (5, False, choice.message.content)
    assert len({exchange.request.affinity for exchange in engine.log}) == 1


async def test_a_streamed_answer_is_the_same_turn_and_ends_with_its_usage():
    engine = ScriptedEngine()
    async with served(engine) as server:
        plain, streamed = (await server.open(make_attempt()) for _ in range(2)), None
        plain, streamed = [address async for address in plain]
        whole = await client_of(plain).chat.completions.create(model="m", messages=[user("hi")])
        stream = await client_of(streamed).chat.completions.create(
            model="m", messages=[user("hi")], stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        assert (
            "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
        )
        assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
        assert chunks[-1].choices == [] and chunks[-1].usage == whole.usage
        collected = [await server.collect(address.api_key) for address in (plain, streamed)]
    for each, exchange in zip(collected, engine.log, strict=True):
        check_against_log(each.sequences[0], [exchange])


async def test_token_fields_are_returned_when_asked_for():
    engine = ScriptedEngine()
    async with served(engine) as server:
        address = await server.open(make_attempt())
        completion = await client_of(address).chat.completions.create(
            model="m",
            messages=[user("hi")],
            logprobs=True,
            extra_body={
                "return_token_ids": True,
                "return_tokens_as_token_ids": True,
                "cache_salt": "x",
                "metadata": {},
            },
        )
    (exchange,) = engine.log
    choice = completion.choices[0]
    assert tuple(completion.prompt_token_ids) == tuple(choice.prompt_token_ids) == exchange.prompt
    assert tuple(choice.token_ids) == exchange.tokens
    assert [each.token for each in choice.logprobs.content] == [f"token_id:{token}" for token in exchange.tokens]
    assert tuple(each.logprob for each in choice.logprobs.content) == exchange.logprobs


async def test_sampling_is_the_recipes_unless_the_agent_may_change_it():
    engine = ScriptedEngine()
    async with served(engine) as server:
        address = await server.open(make_attempt(sampling=Sampling(0.9, 12, stop_tokens=(0,))))
        client = client_of(address)
        for options in (
            {},
            {"max_tokens": 3},
            {"max_completion_tokens": 500, "temperature": 0.25},
            {"seed": 7, "top_p": 0.5, "presence_penalty": 0.0, "extra_body": {"top_k": 40}},
        ):
            await client.chat.completions.create(model="m", messages=[user("hi")], **options)
        collected = await server.collect(address.api_key)
    asked = [(e.request.sampling.temperature, e.request.sampling.max_new_tokens) for e in engine.log]
    assert asked == [(0.9, 12), (0.9, 3), (0.25, 12), (0.9, 12)]
    assert engine.log[3].request.sampling.top_p == 1.0
    assert len({e.request.noise.digest() for e in engine.log}) == 4  # a turn that is asked again is sampled anew
    assert collected.sequences[0].spans[0].temperature == 0.9
    assert collected.facts["ignored"] == {"top_p": 1, "top_k": 1}
    assert collected.facts["dropped_turns"] == 3
    check_against_log(collected.sequences[0], engine.log[3:])


async def test_a_turn_never_outgrows_the_context():
    async with served(ScriptedEngine(["abcdefgh", "x"], context=21), context=21) as server:
        address = await server.open(make_attempt())
        client = client_of(address)
        first = await client.chat.completions.create(model="m", messages=[user("123456")])
        messages = [user("123456"), first.choices[0].message.model_dump(), user("12")]
        cut = await client.chat.completions.create(model="m", messages=messages)
        assert (cut.choices[0].finish_reason, cut.choices[0].message.content) == ("length", "x")
        assert (await server.collect(address.api_key)).truncated
        with pytest.raises(openai.BadRequestError) as error:
            other = await server.open(make_attempt())
            await client_of(other).chat.completions.create(model="m", messages=[user("1" * 30)])
        assert error.value.code == "context_length_exceeded"


async def test_a_cut_turn_cannot_be_continued_but_asked_again():
    engine = ScriptedEngine(["abcdef", "ab"])
    async with served(engine) as server:
        address = await server.open(make_attempt(sampling=Sampling(max_new_tokens=4, stop_tokens=(0,))))
        client = client_of(address)
        first = await client.chat.completions.create(model="m", messages=[user("hi")])
        assert first.choices[0].finish_reason == "length"
        longer = [user("hi"), first.choices[0].message.model_dump(), user("go on")]
        with pytest.raises(openai.ConflictError) as error:
            await client.chat.completions.create(model="m", messages=longer)
        assert error.value.code == "turn_truncated"
        again = await client.chat.completions.create(model="m", messages=[user("hi")])
        assert again.choices[0].finish_reason == "stop"
        check_against_log((await server.collect(address.api_key)).sequences[0], engine.log[1:])


async def test_any_prefix_the_models_and_the_health():
    async with served() as server:
        address = await server.open(make_attempt())
        root = address.base_url.removesuffix("/v1")
        for prefix in ("/v1", "/sessions/abc/v1", "/a/b/c/v1", ""):
            client = openai.AsyncOpenAI(base_url=root + prefix, api_key=address.api_key, max_retries=0)
            await client.chat.completions.create(model="m", messages=[user("hi")])
        models = await client.models.list()
        assert (models.data[0].id, models.data[0].max_model_len) == ("tiny", 4096)
        status, body, _ = await call(address, "GET", "/health")
        assert (status, body) == (200, {"status": "ok", "sessions": 1})
        assert (await call(address, "GET"))[0] == 405
        assert (await call(address, path="/embeddings"))[0] == 404


async def test_concurrent_calls_of_one_session_wait_for_each_other():
    engine = ScriptedEngine()
    async with served(engine) as server:
        address = await server.open(make_attempt())
        client = client_of(address)
        await asyncio.gather(*(client.chat.completions.create(model="m", messages=[user("hi")]) for _ in range(8)))
        collected = await server.collect(address.api_key)
        assert len(engine.log) == 8 and collected.facts["dropped_turns"] == 7
        check_against_log(collected.sequences[0], engine.log[-1:])


async def test_the_answer_is_json_that_any_client_reads():
    async with served() as server:
        address = await server.open(make_attempt())
        _, body, _ = await call(address, json={"messages": [user("hi")], "model": "mine"})
        assert json.loads(json.dumps(body)) == body and body["model"] == "mine"
        assert body["choices"][0]["message"].keys() == {"role", "content"}


async def test_what_a_session_holds_can_be_looked_at():
    engine = ScriptedEngine()
    async with served(engine) as server:
        address = await server.open(make_attempt())
        client = client_of(address)
        for _ in range(2):
            reply = await client.chat.completions.create(model="m", messages=[user("hi")], temperature=0.5)
        seen = await server.inspect(address.api_key)
        assert json.loads(json.dumps(seen)) == seen and address.api_key not in json.dumps(seen)
    first, last = seen["turns"]
    assert (first["kept"], last["kept"], last["parent"], last["temperature"]) == (False, True, None, 0.5)
    assert last["messages"] == [user("hi"), {"role": "assistant", "content": reply.choices[0].message.content}]
    assert (last["prompt_tokens"], last["sampled_tokens"]) == (len(engine.log[1].prompt), len(engine.log[1].tokens))


async def test_random_harnesses_side_by_side_over_http():
    """Sixteen sessions at once, each asking, going on, asking again and diverging: all of it against the log."""
    engine = ScriptedEngine()

    async def harness(server, http, number):
        rng = random.Random(number)
        attempt = make_attempt(index=number, sampling=Sampling(max_new_tokens=20, stop_tokens=(0,)))
        address = await server.open(attempt)
        url, headers = address.base_url + "/chat/completions", {"Authorization": f"Bearer {address.api_key}"}
        history, asked, turns = [], None, 0
        for _ in range(30):
            what = rng.choice(["extend", "extend", "again", "diverge"])
            if what == "diverge" and history:
                messages, expected = [user("other"), *history[1:], user("x")], 409
            elif what == "again" and asked:
                messages, expected = asked, 200
            else:
                messages, expected = [*history, user(f"{number} {rng.random()}")], 200
            async with http.post(url, json={"messages": messages}, headers=headers) as response:
                body = await response.json()
                assert response.status == expected, body
            if expected == 200:
                asked, history = messages, [*messages, body["choices"][0]["message"]]
                turns += 1
        collected = await server.collect(address.api_key)
        mine = [exchange for exchange in engine.log if exchange.request.id.startswith(f"{attempt.id}/")]
        assert len(mine) == turns
        by_id = {exchange.request.id: exchange for exchange in mine}
        kept = list(dict.fromkeys(span.request for span in collected.sequences[0].spans))
        check_against_log(collected.sequences[0], [by_id[id] for id in kept])
        assert kept[-1] == mine[-1].request.id and len(kept) == collected.turns
        return turns

    async with served(engine) as server, aiohttp.ClientSession() as http:
        turns = await asyncio.gather(*(harness(server, http, number) for number in range(16)))
    assert sum(turns) > 250
    assert server.store.faults["history_diverged"] > 50


async def test_branches_of_one_session_run_side_by_side():
    engine = ScriptedEngine()
    async with served(engine) as server:
        address = await server.open(make_attempt(), SessionRules("branching"))
        client = client_of(address)
        first = await client.chat.completions.create(model="m", messages=[user("plan")])
        history = [user("plan"), first.choices[0].message.model_dump()]
        engine.hang()
        asking = [
            asyncio.create_task(client.chat.completions.create(model="m", messages=[*history, user(text)]))
            for text in ("left", "right", "right")
        ]
        while (await engine.stats()).running < 3:
            await asyncio.sleep(0.01)
        engine.hang(False)
        await asyncio.gather(*asking)
        collected = await server.collect(address.api_key)
    assert len({exchange.request.noise.digest() for exchange in engine.log}) == 4
    assert len(collected.sequences) == 2 and collected.facts["dropped_turns"] == 1
    owners = [span.request for sequence in collected.sequences for span in sequence.spans]
    assert len(owners) == len(set(owners)) == 3  # the shared first turn is trained once
