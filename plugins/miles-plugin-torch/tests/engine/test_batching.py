"""What a request gets does not depend on its company, and what is shared is computed once."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np

from miles_core import GenerateResult


def same(a: GenerateResult, b: GenerateResult) -> None:
    assert a.tokens.tolist() == b.tokens.tolist()
    np.testing.assert_allclose(a.logprobs, b.logprobs, atol=2e-5)


def mixed(tools: Any) -> list[Any]:
    rng = np.random.default_rng(5)
    return [
        tools.request(f"r{i}", rng.integers(0, 300, 3 + 9 * i), 5 + 7 * (i % 4), (1.0, 0.7, 0.0)[i % 3], draw=i)
        for i in range(12)
    ]


async def test_alone_in_a_batch_and_after_a_refill(llama: Any, tools: Any) -> None:
    requests = mixed(tools)
    async with tools.engine(llama, prefix_cache=False) as engine:
        alone = [await engine.generate(request) for request in requests]
        together = await asyncio.gather(*(engine.generate(request) for request in requests))
    async with tools.engine(llama, max_running=3, prefill_tokens=16) as engine:
        refilled = await asyncio.gather(*(engine.generate(request) for request in reversed(requests)))
    for one, two, three in zip(alone, together, reversed(refilled), strict=True):
        same(one, two)
        same(one, three)


async def test_the_noise_key_alone_decides(llama: Any, tools: Any) -> None:
    prompt = np.arange(10)
    async with tools.engine(llama) as engine:
        results = await asyncio.gather(
            *(engine.generate(tools.request("a", prompt, 24, draw=draw)) for draw in (0, 1, 0, 2))
        )
    same(results[0], results[2])
    assert len({tuple(result.tokens.tolist()) for result in results}) == 3


async def test_a_prompt_that_many_wait_for_is_computed_once(llama: Any, tools: Any) -> None:
    rng = np.random.default_rng(6)
    groups = [rng.integers(0, 300, length) for length in (40, 55)]
    requests = [tools.request(f"g{g}", groups[g], 8, draw=draw) for draw in range(8) for g in (0, 1)]
    async with tools.engine(llama, prefix_cache=False) as engine:
        results = await asyncio.gather(*(engine.generate(request) for request in requests))
        stats = await engine.stats()
        assert stats.extra["prefilled_tokens"] == 95
        assert (stats.prompt_tokens, stats.cached_tokens, stats.sampled_tokens) == (8 * 95, 7 * 95, 16 * 8)
        assert [result.cached_tokens for result in results] == [0, 0, *[40, 55] * 7]
        for request, result in zip(requests, results, strict=True):
            same(result, await engine.generate(request))


async def test_a_beginning_that_different_prompts_share_is_computed_once(llama: Any, tools: Any) -> None:
    rng = np.random.default_rng(7)
    system = rng.integers(0, 300, 30)
    prompts = [np.concatenate([system, rng.integers(0, 300, 5 + i)]) for i in range(4)]
    requests = [tools.request(f"s{i}", prompt, 6) for i, prompt in enumerate(prompts)]
    async with tools.engine(llama) as engine:
        results = await asyncio.gather(*(engine.generate(request) for request in requests))
        assert (await engine.stats()).extra["prefilled_tokens"] == 30 + 5 + 6 + 7 + 8
        assert [result.cached_tokens for result in results] == [0, 30, 30, 30]
    async with tools.engine(llama, prefix_cache=False) as engine:
        for request, result in zip(requests, results, strict=True):
            same(result, await engine.generate(request))


async def test_a_next_turn_reuses_the_turns_before(llama: Any, tools: Any) -> None:
    prompt = np.arange(50, 90, dtype=np.int32)
    async with tools.engine(llama) as engine:
        first = await engine.generate(tools.request("turn", prompt, 20))
        longer = np.concatenate([prompt, first.tokens, np.arange(7, dtype=np.int32)])
        computed = (await engine.stats()).extra["prefilled_tokens"]
        second = await engine.generate(tools.request("turn", longer, 20, draw=1))
        assert second.cached_tokens == 40 + 19  # the last sampled token was never run
        assert (await engine.stats()).extra["prefilled_tokens"] == computed + len(longer) - 59
        await engine.flush_cache()
        again = await engine.generate(tools.request("turn", longer, 20, draw=1))
        assert again.cached_tokens == 0
    same(second, again)


async def test_a_prompt_that_is_stored_wholly_is_not_computed_again(llama: Any, tools: Any) -> None:
    async with tools.engine(llama) as engine:
        first = await engine.generate(tools.request("p", np.arange(33), 4))
        computed = (await engine.stats()).extra["prefilled_tokens"]
        second = await engine.generate(tools.request("p", np.arange(33), 4))
        assert second.cached_tokens == 33 and (await engine.stats()).extra["prefilled_tokens"] == computed
        shorter = await engine.generate(tools.request("q", np.arange(20), 4))
        assert shorter.cached_tokens == 19  # its last token is run for the final state
    same(first, second)


async def test_stop_tokens_end_a_request_at_once(llama: Any, tools: Any) -> None:
    prompt = np.arange(9)
    async with tools.engine(llama) as engine:
        free = await engine.generate(tools.request("s", prompt, 30))
        stop = int(free.tokens[11])
        first = free.tokens.tolist().index(stop)
        stopped, ignored = await asyncio.gather(
            engine.generate(tools.request("s", prompt, 30, stop_tokens=(stop,))),
            engine.generate(tools.request("s", prompt, 30, stop_tokens=(stop,), ignore_stop=True)),
        )
    assert stopped.finish == "stop" and stopped.tokens.tolist() == free.tokens[: first + 1].tolist()
    assert ignored.finish == "length" and ignored.tokens.tolist() == free.tokens.tolist()


async def test_requests_of_one_tick_are_computed_together(llama: Any, tools: Any) -> None:
    async with tools.engine(llama) as engine:
        await asyncio.gather(*(engine.generate(tools.request("t", np.arange(5), 10, draw=i)) for i in range(6)))
        results = [engine._scheduler.stats(0).sampled_tokens]
        steps = 0
        original = engine._scheduler.step

        def counted() -> Any:
            nonlocal steps
            steps += 1
            return original()

        engine._scheduler.step = counted
        await asyncio.gather(*(engine.generate(tools.request("u", np.arange(5, 11), 10, draw=i)) for i in range(6)))
        assert steps == 10 and results == [60]
