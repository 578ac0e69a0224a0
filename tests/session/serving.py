"""What the session tests share: a served engine, the official client, and the comparison with an engine's log."""

from __future__ import annotations

from contextlib import asynccontextmanager

import aiohttp
import numpy as np
import openai

from miles_core import RealClock
from miles_core.session.server import SessionServer
from miles_core.testing import CharRenderer, ScriptedEngine


@asynccontextmanager
async def served(engine=None, renderer=None, *, context=4096, **options):
    server = SessionServer(
        engine or ScriptedEngine(), renderer or CharRenderer(), RealClock(), model="tiny", context=context, **options
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


def client_of(address, **options) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=address.base_url, api_key=address.api_key, **{"max_retries": 0, **options})


def user(text: str) -> dict:
    return {"role": "user", "content": text}


def check_against_log(sequence, exchanges) -> None:
    """The sequence is what the engine says that it sampled: prompts, outputs, log-probs, versions, in that place."""
    last = exchanges[-1]
    assert sequence.tokens.tolist() == [*last.prompt, *last.tokens]
    sampled, logprobs, versions = [], [], []
    for exchange in exchanges:
        gap = len(exchange.prompt) - len(sampled)
        sampled += [False] * gap + [True] * len(exchange.tokens)
        logprobs += [0.0] * gap + list(exchange.logprobs)
        versions += [0] * gap + list(exchange.versions)
    assert sequence.sampled.tolist() == sampled
    assert np.array_equal(sequence.logprobs, np.array(logprobs, np.float32))
    assert sequence.versions.tolist() == versions
    owners = [span.request for span in sequence.spans]
    assert list(dict.fromkeys(owners)) == [exchange.request.id for exchange in exchanges]
    temperatures = {exchange.request.id: exchange.request.sampling.temperature for exchange in exchanges}
    assert all(span.temperature == temperatures[span.request] for span in sequence.spans)


async def call(address, method="POST", path="/chat/completions", **options):
    """A plain HTTP call: status, body, headers."""
    headers = {"Authorization": f"Bearer {address.api_key}", **options.pop("headers", {})}
    async with (
        aiohttp.ClientSession() as http,
        http.request(method, address.base_url + path, headers=headers, **options) as response,
    ):
        return response.status, await response.json(content_type=None), response.headers
