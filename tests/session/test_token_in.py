"""Token-in/token-out inside a session: ids are recorded as they are given, and attach by their beginning."""

from __future__ import annotations

import random

import numpy as np
import pytest
from serving import call, check_against_log, client_of, served, user

from miles_core import RealClock, Sampling, SessionRules
from miles_core.session.call import TokenRequest
from miles_core.session.store import SessionStore
from miles_core.testing import CharRenderer, ScriptedEngine, make_attempt

PATH = "/inference/v1/generate"


async def ask(address, tokens, **sampling):
    status, body, _ = await call(address, path=PATH, json={"token_ids": tokens, "sampling_params": sampling})
    return status, body


async def test_turns_go_on_from_their_tokens_and_are_kept_as_given():
    engine = ScriptedEngine(["ab", "cd", "ef"])
    async with served(engine) as server:
        address = await server.open(make_attempt())
        status, first = await ask(address, [72, 105], logprobs=1, temperature=0.5)
        assert status == 200 and first["choices"][0]["token_ids"] == [97, 98, 0]
        content = first["choices"][0]["logprobs"]["content"]
        assert [each["token"] for each in content] == ["token_id:97", "token_id:98", "token_id:0"]
        assert tuple(each["logprob"] for each in content) == engine.log[0].logprobs
        _, again = await ask(address, [72, 105])  # the last turn may be asked again
        longer = [72, 105, *again["choices"][0]["token_ids"], 10, 11]
        await ask(address, longer, max_tokens=5)
        collected = await server.collect(address.api_key)
        check_against_log(collected.sequences[0], engine.log[1:])
        assert collected.facts["dropped_turns"] == 1
        status, refused = await ask(address, [72, 106, 1])
        assert (status, refused["error"]["code"]) == (409, "history_diverged")
        assert "token 105 at 1, the request 106" in refused["error"]["message"]
        status, refused = await ask(address, longer[:-1])
        assert status == 409 and "ends after 6" in refused["error"]["message"]


async def test_branches_share_what_they_share():
    engine = ScriptedEngine()
    async with served(engine) as server:
        address = await server.open(make_attempt(), SessionRules("branching"))
        _, first = await ask(address, [1, 2])
        trunk = [1, 2, *first["choices"][0]["token_ids"]]
        for fork in (3, 4):
            await ask(address, [*trunk, fork])
        await ask(address, [9])
        collected = await server.collect(address.api_key)
    assert len(collected.sequences) == 3 and collected.turns == 4
    check_against_log(collected.sequences[0], [engine.log[0], engine.log[1]])
    assert collected.sequences[1].sampled_count == len(engine.log[2].tokens)


async def test_a_chat_is_another_history():
    async with served(ScriptedEngine(["ab", "x"])) as server:
        address = await server.open(make_attempt())
        await ask(address, [104, 105, 10])
        completion = client_of(address).chat.completions.create(model="m", messages=[user("hi")])
        with pytest.raises(Exception, match="history diverged at message 0"):
            await completion


@pytest.mark.parametrize(
    ("code", "body"),
    [
        ("invalid_request", {"token_ids": []}),
        ("invalid_request", {"token_ids": "abc"}),
        ("invalid_request", {"token_ids": [1, -1]}),
        ("invalid_request", {"token_ids": [1, True]}),
        ("invalid_request", {"token_ids": [1], "sampling_params": 3}),
        ("unsupported_n", {"token_ids": [1], "sampling_params": {"n": 2}}),
        ("invalid_tokens", {"token_ids": [1_000_000]}),
    ],
)
async def test_bad_ids_are_the_clients_fault_and_break_nothing(code, body):
    async with served() as server:
        address = await server.open(make_attempt())
        status, told, _ = await call(address, path=PATH, json=body)
        assert (status, told["error"]["code"]) == (400, code), told
        assert not server.store.find(address.api_key).broken.done()
        assert (await ask(address, [1]))[0] == 200


async def test_a_clients_own_stop_tokens_end_a_turn():
    async with served(ScriptedEngine(["abc"])) as server:
        address = await server.open(make_attempt(sampling=Sampling(max_new_tokens=9, stop_tokens=(0,))))
        _, body = await ask(address, [1], stop_token_ids=[98])
        assert body["choices"][0]["token_ids"] == [97, 98] and body["choices"][0]["finish_reason"] == "stop"


async def test_random_branches_of_tokens_are_those_that_the_engine_saw():
    rng, engine = random.Random(5), ScriptedEngine(context=10**6)
    store = SessionStore(engine, CharRenderer(), RealClock(), 10**6)
    session = store.find(store.open(make_attempt(), SessionRules("branching")))
    known: list[list[int]] = [[]]
    for _ in range(150):
        prompt = [*rng.choice(known), *(rng.randrange(1, 4) for _ in range(rng.randint(1, 3)))]
        reply = await session.chat(TokenRequest(np.array(prompt, np.int32)))
        assert reply.node.tokens.tolist() == [*engine.log[-1].prompt, *engine.log[-1].tokens]
        assert list(engine.log[-1].prompt) == prompt
        known.append(reply.node.tokens.tolist())
    sequences = session.collect().sequences
    trained = sum(sequence.sampled_count for sequence in sequences)
    kept = {span.request for sequence in sequences for span in sequence.spans}
    assert trained == sum(len(e.tokens) for e in engine.log if e.request.id in kept)  # each of them once
    for sequence in sequences:
        assert sequence.tokens.tolist() in known
