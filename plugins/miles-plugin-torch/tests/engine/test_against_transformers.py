"""Tokens and log-probs against transformers' forward pass and `generate`."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch

DENSE = ("llama", "llama-untied-biased", "llama-linear-rope", "llama-llama3-rope", "mistral", "qwen2", "qwen3")
LENGTHS = (1, 3, 17, 17, 90, 200)


def prompts(vocabulary: int) -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    return [rng.integers(0, vocabulary, length).astype(np.int32) for length in LENGTHS]


@pytest.mark.parametrize("name", [*DENSE, "qwen3-moe"])
async def test_logprobs_are_those_of_transformers(name: str, model_named: Any, tools: Any) -> None:
    model = model_named(name)
    transport = tools.MemoryTransport()
    async with tools.engine(model, transport, publish=False, prefill_tokens=64) as engine:
        assert engine.decoder_choice.startswith("dense" if name in DENSE else "transformers: architecture Qwen3Moe")
        await engine.pause("retract")
        await engine.begin_update(tools.manifest_of(1, model.tensors()))
        await engine.load(transport.send("all", model.tensors()))
        assert await engine.finish_update() == 1
        await engine.resume()
        requests = [
            tools.request(f"{index}-{temperature}", prompt, temperature=temperature)
            for index, prompt in enumerate(prompts(model.files.card.vocabulary))
            for temperature in (1.0, 0.5, 0.0)
        ]
        results = await asyncio.gather(*(engine.generate(request) for request in requests))
    for request, result in zip(requests, results, strict=True):
        assert len(result.tokens) == 16 and result.finish == "length" and result.engine == "engine-0"
        whole = np.concatenate([request.tokens, result.tokens])
        expected = model.logprobs(whole, len(request.tokens), request.sampling.temperature or 1.0)
        assert result.logprobs.dtype == np.float32 and result.tokens.dtype == np.int32
        np.testing.assert_allclose(result.logprobs, expected, atol=1e-4, rtol=0)
        assert [(span.version, span.start, span.stop) for span in result.spans] == [(1, 0, 16)]


@pytest.mark.parametrize("name", ["llama", "qwen3", "qwen3-moe"])
async def test_greedy_tokens_are_those_of_generate(name: str, model_named: Any, tools: Any) -> None:
    model = model_named(name)
    transport = tools.MemoryTransport()
    async with tools.engine(model, transport, publish=False) as engine:
        await engine.pause("retract")
        await engine.begin_update(tools.manifest_of(1, model.tensors()))
        await engine.load(transport.send("all", model.tensors()))
        await engine.finish_update()
        await engine.resume()
        given = prompts(300)
        results = await asyncio.gather(
            *(engine.generate(tools.request(str(i), prompt, 24, 0.0)) for i, prompt in enumerate(given))
        )
    for prompt, result in zip(given, results, strict=True):
        expected = model.reference.generate(
            torch.from_numpy(prompt.astype(np.int64))[None], do_sample=False, max_new_tokens=24, eos_token_id=None
        )
        assert result.tokens.tolist() == expected[0, len(prompt) :].tolist()


async def test_a_sliding_window_goes_through_transformers_or_is_refused(tmp_path: Any, tools: Any) -> None:
    from transformers import MistralConfig

    from miles_core import RequestError

    config = MistralConfig(**{**tools.CONFIGS["mistral"]().to_dict(), "sliding_window": 8})
    model = tools.Model(config, tmp_path)
    with pytest.raises(RequestError, match="sliding-window"):
        async with tools.engine(model):
            pass
