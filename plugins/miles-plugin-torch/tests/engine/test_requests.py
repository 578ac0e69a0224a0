"""Requests that cannot be served, weights that are broken, and the engine's end."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from miles_core import PauseMode, RequestError, RunError


@pytest.mark.parametrize(
    ("tokens", "sampling", "message"),
    [
        ([300], {}, "outside the vocabulary"),
        ([-1], {}, "outside the vocabulary"),
        ([], {}, "n >= 1"),
        (np.arange(200), {"new": 313}, "context"),
        ([1], {"new": 0}, "max_new_tokens"),
        ([1], {"temperature": -0.5}, "temperature"),
        ([1], {"top_p": 0.0}, "top_p"),
        ([1], {"top_k": -1}, "top_k"),
    ],
)
async def test_bad_requests(tokens: Any, sampling: Any, message: str, llama: Any, tools: Any) -> None:
    async with tools.engine(llama) as engine:
        assert engine.capabilities().context == 512
        with pytest.raises(RequestError, match=message) as caught:
            await engine.generate(tools.request("bad one", tokens, **sampling))
        assert "bad one" in str(caught.value)


async def test_other_bad_requests(llama: Any, tools: Any) -> None:
    async with tools.engine(llama) as engine:
        good = tools.request("r", [1, 2])
        with pytest.raises(RequestError, match="int32"):
            await engine.generate(replace(good, tokens=np.array([1, 2])))
        with pytest.raises(RequestError, match="adapter"):
            await engine.generate(replace(good, adapter="a"))


async def test_the_whole_context_can_be_used(llama: Any, tools: Any) -> None:
    async with tools.engine(llama) as engine:
        result = await engine.generate(tools.request("r", np.arange(200), 312))
        whole = np.concatenate([np.arange(200), result.tokens])
        np.testing.assert_allclose(result.logprobs, llama.logprobs(whole, 200, 1.0), atol=1e-4)


async def test_weights_that_diverged_are_named(llama: Any, tools: Any) -> None:
    transport = tools.MemoryTransport()
    broken = {name: tensor.clone() for name, tensor in llama.tensors().items()}
    broken["model.layers.1.mlp.down_proj.weight"][3, 3] = float("nan")
    async with tools.engine(llama, transport) as engine:
        await engine.pause(PauseMode.RETRACT)
        await engine.begin_update(tools.manifest_of(2, broken))
        await engine.load(transport.send("nan", broken))
        await engine.finish_update()
        await engine.resume()
        with pytest.raises(RunError, match=r"'r'.*not finite.*version 2"):
            await engine.generate(tools.request("r", np.arange(20)))
        await tools.publish_folder(engine, 3, llama.folder)
        result = await engine.generate(tools.request("r", np.arange(20)))
        assert np.isfinite(result.logprobs).all() and (await engine.health()).ok


async def test_a_step_that_breaks_ends_every_request_and_shows_in_health(llama: Any, tools: Any) -> None:
    async with tools.engine(llama) as engine:
        good = await engine.generate(tools.request("r", np.arange(20)))
        assert good.finish == "length"
        engine._scheduler._decode = lambda: 1 / 0
        with pytest.raises(RunError, match="ZeroDivisionError"):
            await engine.generate(tools.request("r", np.arange(20)))
        health = await engine.health()
        assert not health.ok and "ZeroDivisionError" in health.detail
        with pytest.raises(RunError, match="no usable weights"):
            await engine.generate(tools.request("r", np.arange(20)))


async def test_closing_ends_what_is_in_flight(llama: Any, tools: Any) -> None:
    async with tools.engine(llama) as engine:
        task = asyncio.create_task(engine.generate(tools.request("r", np.arange(20), 400)))
        await asyncio.sleep(0.01)
        await engine.close()
        with pytest.raises(RunError, match="closed"):
            await task
        assert not (await engine.health()).ok
        await engine.close()


async def test_the_loop_stays_responsive_while_tokens_are_computed(llama: Any, tools: Any) -> None:
    async with tools.engine(llama) as engine:
        task = asyncio.create_task(engine.generate(tools.request("r", np.arange(20), 300)))
        ticks = 0
        while not task.done():
            await asyncio.sleep(0)
            ticks += 1
            assert (await engine.health()).ok
        assert ticks > 50


def test_options_import_no_torch() -> None:
    import subprocess
    import sys

    code = "import sys, miles_plugin_torch.engine.options; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_computing_in_float32_is_the_default() -> None:
    from miles_plugin_torch.engine.options import TorchEngineOptions

    assert getattr(torch, TorchEngineOptions().dtype) is torch.float32
