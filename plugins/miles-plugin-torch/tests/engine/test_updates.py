"""Weight updates: what is checked, what survives a failure, and what happens to requests in flight."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest
import torch

from miles_core import Delivery, Form, PauseMode, RunError, TensorInfo, UpdateManifest

PROMPT = np.arange(100, 130, dtype=np.int32)


@pytest.fixture
def other(model_named: Any) -> Any:
    return model_named("llama", 1)


async def in_flight(engine: Any, tools: Any, count: int = 3, new: int = 200) -> list[asyncio.Task[Any]]:
    """Requests of which each has some tokens already."""
    tasks = [asyncio.create_task(engine.generate(tools.request(f"f{i}", PROMPT, new, draw=i))) for i in range(count)]

    async def some() -> bool:
        return (await engine.stats()).sampled_tokens > 10 * count

    await tools.until(some)
    return tasks


async def test_no_weights_no_tokens(llama: Any, tools: Any) -> None:
    async with tools.engine(llama, publish=False) as engine:
        assert await engine.version() is None
        with pytest.raises(RunError, match="no usable weights"):
            await engine.generate(tools.request("r", PROMPT))
        await engine.pause(PauseMode.RETRACT)
        waiting = asyncio.create_task(engine.generate(tools.request("r", PROMPT)))
        with pytest.raises(RunError, match="no usable weights"):
            await engine.resume()
        await tools.publish_folder(engine, 5, llama.folder)
        result = await waiting
        assert await engine.version() == 5 and result.spans[0].version == 5


async def test_an_update_needs_a_pause_and_is_the_only_one(llama: Any, tools: Any) -> None:
    async with tools.engine(llama) as engine:
        manifest = tools.manifest_of(2, llama.tensors())
        with pytest.raises(RunError, match="not paused"):
            await engine.begin_update(manifest)
        await engine.pause(PauseMode.RETRACT)
        await engine.pause(PauseMode.RETRACT)
        await engine.begin_update(manifest)
        with pytest.raises(RunError, match="already open"):
            await engine.begin_update(manifest)
        with pytest.raises(RunError, match="open update"):
            await engine.resume()
        await engine.discard_update()
        await engine.resume()
        assert await engine.version() == 1


async def test_a_manifest_that_does_not_fit_changes_nothing(llama: Any, other: Any, tools: Any) -> None:
    tensors = other.tensors()
    first = next(iter(tensors))
    wrong = {
        "no tensors model.extra": {**tensors, "model.extra": torch.zeros(3)},
        "has shape": {**tensors, first: torch.zeros(3, 3)},
        "has dtype": {**tensors, first: tensors[first].to(torch.int32)},
    }
    async with tools.engine(llama) as engine:
        before = await engine.generate(tools.request("r", PROMPT))
        await engine.pause(PauseMode.RETRACT)
        for message, broken in wrong.items():
            with pytest.raises(RunError, match=message):
                await engine.begin_update(tools.manifest_of(2, broken))
        await engine.resume()
        assert (await engine.generate(tools.request("r", PROMPT))).tokens.tolist() == before.tokens.tolist()
    async with tools.engine(llama, publish=False) as engine:
        await engine.pause(PauseMode.RETRACT)
        with pytest.raises(RunError, match="must bring every tensor"):
            await engine.begin_update(tools.manifest_of(1, {first: tensors[first]}))


@pytest.mark.parametrize("name", ["llama", "qwen3-moe"])
async def test_a_transfer_that_breaks_leaves_the_old_weights(name: str, model_named: Any, tools: Any) -> None:
    old, new = model_named(name), model_named(name, 1)
    transport = tools.MemoryTransport()
    async with tools.engine(old, transport, publish=False) as engine:
        await engine.pause(PauseMode.RETRACT)
        await engine.begin_update(tools.manifest_of(1, old.tensors()))
        await engine.load(transport.send("old", old.tensors()))
        await engine.finish_update()
        await engine.resume()
        before = await engine.generate(tools.request("r", PROMPT))
        await engine.pause(PauseMode.RETRACT)
        await engine.begin_update(tools.manifest_of(2, new.tensors()))
        with pytest.raises(OSError, match="cut"):
            await engine.load(transport.send("new", new.tensors(), fail_after=9))
        with pytest.raises(RunError, match="lacks"):
            await engine.finish_update()
        await engine.discard_update()
        await engine.resume()
        after = await engine.generate(tools.request("r", PROMPT))
        assert await engine.version() == 1 and after.spans[0].version == 1
        np.testing.assert_array_equal(after.logprobs, before.logprobs)


async def test_tensors_in_several_deliveries_and_parts(llama: Any, other: Any, tools: Any) -> None:
    transport = tools.MemoryTransport()
    tensors = other.tensors()
    names = sorted(tensors)
    async with tools.engine(llama, transport) as engine:
        await engine.pause(PauseMode.RETRACT)
        await engine.begin_update(tools.manifest_of(2, tensors))
        await engine.load(transport.send("a", {name: tensors[name] for name in names[::2]}))
        with pytest.raises(RunError, match="lacks"):
            await engine.finish_update()
        await engine.load(transport.send("b", {name: tensors[name] for name in names[1::2]}))
        assert await engine.finish_update() == 2
        await engine.resume()
        result = await engine.generate(tools.request("r", PROMPT))
        whole = np.concatenate([PROMPT, result.tokens])
        np.testing.assert_allclose(result.logprobs, other.logprobs(whole, 30, 1.0), atol=1e-4)


async def test_an_update_of_some_tensors_keeps_the_others(llama: Any, other: Any, tools: Any, tmp_path: Any) -> None:
    transport = tools.MemoryTransport()
    some = {name: tensor for name, tensor in other.tensors().items() if "layers.1." in name and "mlp.up" not in name}
    mixture = tools.Model(tools.CONFIGS["llama"](), tmp_path)
    mixture.reference.load_state_dict({**mixture.reference.state_dict(), **some})
    async with tools.engine(llama, transport) as engine:
        await engine.pause(PauseMode.RETRACT)
        await engine.begin_update(tools.manifest_of(2, some))
        await engine.load(transport.send("some", some))
        await engine.finish_update()
        await engine.resume()
        result = await engine.generate(tools.request("r", PROMPT))
    whole = np.concatenate([PROMPT, result.tokens])
    np.testing.assert_allclose(result.logprobs, mixture.logprobs(whole, 30, 1.0), atol=1e-4)


async def test_what_was_not_announced_is_refused(llama: Any, tools: Any) -> None:
    transport = tools.MemoryTransport()
    name = "model.norm.weight"
    async with tools.engine(llama, transport) as engine:
        await engine.pause(PauseMode.RETRACT)
        await engine.begin_update(tools.manifest_of(2, {name: torch.ones(64)}))
        for tensors in ({"model.other": torch.ones(64)}, {name: torch.ones(63)}, {name: torch.ones(64).double()}):
            with pytest.raises(RunError, match="the manifest has"):
                await engine.load(transport.send("x", tensors))
        with pytest.raises(RunError, match="disk"):
            await engine.load(Delivery(Form.DISK, "disk", {"path": "/nowhere"}))
        await engine.discard_update()
        with pytest.raises(RunError, match="no update is open"):
            await engine.load(transport.send("x", {name: torch.ones(64)}))
        with pytest.raises(RunError, match="adapters"):
            await engine.begin_update(UpdateManifest(3, Form.ADAPTER, (TensorInfo("a", (1,), "float32"),)))


async def test_tied_tensors_that_differ_are_refused(llama: Any, tools: Any) -> None:
    transport = tools.MemoryTransport()
    twice = {**llama.tensors()}
    twice["lm_head.weight"] = twice["model.embed_tokens.weight"]
    async with tools.engine(llama, transport) as engine:
        await engine.pause(PauseMode.RETRACT)
        await engine.begin_update(tools.manifest_of(2, twice))
        await engine.load(transport.send("same", twice))
        assert await engine.finish_update() == 2
        twice["lm_head.weight"] = twice["lm_head.weight"] + 1
        await engine.begin_update(tools.manifest_of(3, twice))
        with pytest.raises(RunError, match="tied"):
            await engine.load(transport.send("differing", twice))


async def test_a_damaged_folder_leaves_the_old_weights(llama: Any, tools: Any, tmp_path: Any) -> None:
    (tmp_path / "model.safetensors").write_bytes((llama.folder / "model.safetensors").read_bytes()[:5000])
    async with tools.engine(llama) as engine:
        await engine.pause(PauseMode.RETRACT)
        for folder in (tmp_path, tmp_path / "missing"):
            await engine.begin_update(UpdateManifest(2, Form.DISK))
            with pytest.raises(RunError):
                await engine.load(Delivery(Form.DISK, "disk", {"path": str(folder)}))
            with pytest.raises(RunError, match="lacks"):
                await engine.finish_update()
            await engine.discard_update()
        await engine.resume()
        assert (await engine.generate(tools.request("r", PROMPT))).spans[0].version == 1


async def test_retract_recomputes_under_the_new_weights(llama: Any, other: Any, tools: Any) -> None:
    async with tools.engine(llama) as engine:
        tasks = await in_flight(engine, tools)
        await engine.pause(PauseMode.RETRACT)
        sampled = (await engine.stats()).sampled_tokens
        late = asyncio.create_task(engine.generate(tools.request("late", PROMPT, 5)))
        await asyncio.sleep(0.05)
        assert (await engine.stats()).sampled_tokens == sampled  # nothing is computed while paused
        await tools.publish_folder(engine, 2, other.folder)
        for result in await asyncio.gather(*tasks):
            first, second = result.spans
            assert (first.version, first.start, first.stop) == (1, 0, second.start)
            assert (second.version, second.stop) == (2, 200)
            whole = np.concatenate([PROMPT, result.tokens])
            old, new = llama.logprobs(whole, 30, 1.0), other.logprobs(whole, 30, 1.0)
            np.testing.assert_allclose(result.logprobs[: first.stop], old[: first.stop], atol=1e-4)
            np.testing.assert_allclose(result.logprobs[first.stop :], new[first.stop :], atol=1e-4)
        assert [span.version for span in (await late).spans] == [2]


async def test_retract_without_an_update_changes_nothing(llama: Any, tools: Any) -> None:
    async with tools.engine(llama) as engine:
        plain = await asyncio.gather(*await in_flight(engine, tools))
        tasks = await in_flight(engine, tools)
        await engine.pause(PauseMode.RETRACT)
        await engine.resume()
        for one, two in zip(plain, await asyncio.gather(*tasks), strict=True):
            assert one.tokens.tolist() == two.tokens.tolist()


async def test_in_place_keeps_the_old_kv(llama: Any, other: Any, tools: Any) -> None:
    async with tools.engine(llama) as engine:
        tasks = await in_flight(engine, tools)
        await tools.publish_folder(engine, 2, other.folder, PauseMode.IN_PLACE)
        results = await asyncio.gather(*tasks)
        stored = await engine.generate(tools.request("stored", PROMPT, 5))
        assert stored.cached_tokens == 29 and stored.spans[0].version == 2
    for result in results:
        switch = result.spans[1].start
        ids = torch.from_numpy(np.concatenate([PROMPT, result.tokens]).astype(np.int64))[None]
        with torch.no_grad():
            # the token before the switch is the first one that the new weights run
            cached = llama.reference(ids[:, : 30 + switch - 1], use_cache=True).past_key_values
            logits = other.reference(ids[:, 30 + switch - 1 : -1], past_key_values=cached, use_cache=True).logits[0]
        expected = torch.log_softmax(logits.double(), -1).gather(1, ids[0, 30 + switch :, None])[:, 0]
        np.testing.assert_allclose(result.logprobs[switch:], expected.numpy(), atol=1e-4)


async def test_abort_returns_what_there_is(llama: Any, other: Any, tools: Any) -> None:
    async with tools.engine(llama, max_running=2) as engine:
        tasks = [asyncio.create_task(engine.generate(tools.request(f"f{i}", PROMPT, 400))) for i in range(3)]

        async def some() -> bool:
            return (await engine.stats()).sampled_tokens > 20

        await tools.until(some)
        await engine.pause(PauseMode.ABORT)
        results = await asyncio.gather(*tasks)
        assert [result.finish for result in results] == ["abort"] * 3
        assert 10 <= len(results[0].tokens) < 400 and len(results[2].tokens) == 0 and results[2].spans == ()
        whole = np.concatenate([PROMPT, results[0].tokens])
        np.testing.assert_allclose(results[0].logprobs, llama.logprobs(whole, 30, 1.0), atol=1e-4)
        await tools.publish_folder(engine, 2, other.folder, PauseMode.ABORT)
        assert (await engine.generate(tools.request("r", PROMPT, 5))).spans[0].version == 2


async def test_an_update_flushes_the_prefix_cache(llama: Any, other: Any, tools: Any) -> None:
    async with tools.engine(llama) as engine:
        await engine.generate(tools.request("r", PROMPT))
        assert (await engine.generate(tools.request("r", PROMPT))).cached_tokens == 30
        await tools.publish_folder(engine, 2, other.folder)
        result = await engine.generate(tools.request("r", PROMPT))
        assert result.cached_tokens == 0
        whole = np.concatenate([PROMPT, result.tokens])
        np.testing.assert_allclose(result.logprobs, other.logprobs(whole, 30, 1.0), atol=1e-4)
