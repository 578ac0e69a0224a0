"""Sessions over HTTP whose harness speaks another dialect with every call: one sequence each, token for token."""

from __future__ import annotations

import asyncio
import random

import aiohttp
import pytest
from dialect_programs import play
from http_turns import over_http
from serving import served

from miles_core.testing import CharToolRenderer, ScriptedEngine

PARAMETERS = {"type": "object", "properties": {"a": {}}}
TOOLS = ({"type": "function", "function": {"name": "add", "description": "adds", "parameters": PARAMETERS}},)
ARGUMENTS = ('{"a": 1}', '{"a":1.0,"b" : [true, null]}', "{ }", '{"b":"x", "a":{"c":-2}}')


def answer(request) -> str:
    """Thoughts, words and calls that only the request's noise decides."""
    rng = random.Random(request.noise.digest())
    thought = rng.choice(["", "", "<think>hm</think>"])
    words = rng.choice(["", " ", "well\n", "see <b>"])
    calls = "".join(f"<call>add {rng.choice(ARGUMENTS)}</call>" for _ in range(rng.choice([0, 0, 1, 2])))
    return thought + (words + calls or "ok")


async def test_dialects_may_change_with_every_call():
    engine, renderer = ScriptedEngine(answer, context=100_000), CharToolRenderer()
    async with served(engine, renderer, context=100_000) as server, aiohttp.ClientSession() as http:
        done = await asyncio.gather(
            *(play(server, http, engine, renderer, number, turns=25, tools=TOOLS) for number in range(12))
        )
        assert not server.store.faults and sum(streamed for streamed, _ in done) > 100
        assert server.metrics()["session/turns"] >= 300


@pytest.mark.parametrize("family", ["smollm2"])
def test_a_real_tokenizer_over_http(family):
    found = over_http(family, 60)
    assert found["turns"] >= 60 and found["differences"] == 0
