"""KV memory: never above its bound, and requests wait for it rather than fail."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from miles_plugin_torch.engine.kv import row_capacity
from miles_plugin_torch.engine.live import Live
from miles_plugin_torch.engine.options import TorchEngineOptions
from miles_plugin_torch.engine.scheduler import Scheduler

from miles_core import RequestError


@given(st.integers(1, 100_000))
def test_row_capacities_are_few_and_close(tokens: int) -> None:
    capacity = row_capacity(tokens)
    assert capacity >= tokens
    assert capacity - tokens < max(64, tokens / 4)
    assert row_capacity(capacity) == capacity


LOADS = st.lists(
    st.tuples(st.integers(0, 3), st.integers(1, 70), st.integers(1, 60), st.integers(0, 30), st.booleans()),
    min_size=1,
    max_size=25,
)


@settings(deadline=None, max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(loads=LOADS, limit=st.integers(330, 900), cache=st.booleans(), running=st.integers(1, 6))
def test_memory_stays_within_its_bound(
    loads: list[tuple[int, int, int, int, bool]], limit: int, cache: bool, running: int, decoder: Any, tools: Any
) -> None:
    """Requests (prompt family, prompt length, new tokens, arrival step, cancelled half-way) all end, with the tokens
    that they get in a roomy engine."""
    import torch

    families = [np.random.default_rng(family).integers(0, 300, 70).astype(np.int32) for family in range(4)]
    options = TorchEngineOptions(kv_tokens=limit, prefix_cache=cache, max_running=running, prefill_tokens=48)
    scheduler = Scheduler(decoder, options, torch.float32, torch.device("cpu"))
    scheduler.version = 1
    lives = [
        Live(tools.request(f"r{i}", families[family][:length], new, draw=i), i)
        for i, (family, length, new, _, _) in enumerate(loads)
    ]
    arrivals = {live: load[3] for live, load in zip(lives, loads, strict=True)}
    cancelled = {live for live, load in zip(lives, loads, strict=True) if load[4]}
    ended: set[Live] = set()
    with torch.inference_mode():
        for step in range(5000):
            scheduler.submit([live for live in lives if arrivals[live] == step])
            for live in [live for live in scheduler.in_flight() if live in cancelled and len(live.tokens) > 3]:
                scheduler.remove(live)
                ended.add(live)
            ended.update(scheduler.step())
            memory = scheduler.memory
            resident = sum(slab.kv[0].shape[0] * slab.capacity for slab in memory.slabs.values())
            resident += sum(prefix.kv[0].shape[2] for prefix in memory.prefixes)
            assert resident <= memory.held() <= limit
            if step >= 30 and not scheduler.busy:
                break
    assert ended == set(lives)
    assert memory.promised == 0 and not any(prefix.users for prefix in memory.prefixes)
    assert not any(slab.slots for slab in memory.slabs.values())
    _check_tokens(lives, cancelled, decoder, tools)


def _check_tokens(lives: list[Live], cancelled: set[Live], decoder: Any, tools: Any) -> None:
    import torch

    roomy = Scheduler(decoder, TorchEngineOptions(prefix_cache=False), torch.float32, torch.device("cpu"))
    roomy.version = 1
    again = [Live(live.request, live.arrival) for live in lives]
    roomy.submit(again)
    with torch.inference_mode():
        while roomy.busy:
            roomy.step()
    for live, expected in zip(lives, again, strict=True):
        assert live.error is None
        assert live.tokens == expected.tokens[: len(live.tokens)]
        assert live in cancelled or len(live.tokens) == len(expected.tokens)


@pytest.fixture(scope="module")
def decoder(llama: Any) -> Any:
    import torch
    from miles_plugin_torch.engine.architecture import dense_shape
    from miles_plugin_torch.engine.decoder import DenseDecoder
    from transformers import AutoConfig

    made = DenseDecoder(
        dense_shape(AutoConfig.from_pretrained(llama.folder), "LlamaForCausalLM"), torch.device("cpu"), torch.float32
    )
    staging = made.staging()
    for name, tensor in llama.tensors().items():
        staging.put(name, tensor)
    made.adopt(staging)
    return made


async def test_more_requests_than_memory_wait_and_all_end(llama: Any, tools: Any) -> None:
    requests = [tools.request(f"w{i}", np.arange(i, i + 20), 30, draw=i) for i in range(20)]
    async with tools.engine(llama, kv_tokens=300) as engine:
        tasks = [asyncio.create_task(engine.generate(request)) for request in requests]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        stats = await engine.stats()
        assert stats.waiting > 10 and stats.running <= 4
        results = await asyncio.gather(*tasks)
    assert [len(result.tokens) for result in results] == [30] * 20


async def test_a_request_that_can_never_fit_is_refused_at_once(llama: Any, tools: Any) -> None:
    async with tools.engine(llama, kv_tokens=300) as engine:
        with pytest.raises(RequestError, match="KV memory"):
            await engine.generate(tools.request("big", np.arange(200), 100))
        assert len((await engine.generate(tools.request("small", np.arange(20), 100))).tokens) == 100


async def test_cancelling_a_request_frees_its_place(llama: Any, tools: Any) -> None:
    async with tools.engine(llama, max_running=1, prefix_cache=False) as engine:
        long = asyncio.create_task(engine.generate(tools.request("long", np.arange(20), 450)))
        waiting = asyncio.create_task(engine.generate(tools.request("next", np.arange(9), 3)))

        async def sampled() -> bool:
            return (await engine.stats()).sampled_tokens > 5

        await tools.until(sampled)
        long.cancel()
        assert len((await waiting).tokens) == 3
        with pytest.raises(asyncio.CancelledError):
            await long
        stats = await engine.stats()
        assert (stats.running, stats.waiting) == (0, 0) and stats.sampled_tokens < 450
