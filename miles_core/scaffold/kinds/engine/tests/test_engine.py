"""Noise by key, pauses, and updates that are whole or not at all."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from miles_core import (
    BuildContext,
    Delivery,
    Finish,
    Form,
    GenerateRequest,
    ModelCard,
    ModelFiles,
    NoiseKey,
    PauseMode,
    RequestError,
    RunError,
    Sampling,
    UpdateManifest,
)

from miles_plugin_xyz.engine import XyzEngine, choose
from miles_plugin_xyz.options import XyzOptions

CARD = ModelCard("tiny", "Logits", 32, vocabulary=8, hidden=1, layers=0, parameters=8, stop_tokens=(0,))


async def made(version: int = 1) -> XyzEngine:
    """An engine that runs a version."""
    options = XyzOptions()
    context = BuildContext(seed=1, name="engine-0", model=ModelFiles(Path(), CARD))
    engine = XyzEngine(options, context)
    await updated(engine, version)
    return engine


async def updated(engine: XyzEngine, version: int) -> None:
    await engine.pause(PauseMode.RETRACT)
    await engine.begin_update(UpdateManifest(version, Form.DISK))
    await engine.load(Delivery(Form.DISK, "disk"))
    assert await engine.finish_update() == version
    await engine.resume()


def request(id: str = "r", limit: int = 8, draw: int = 0, ignore_stop: bool = True) -> GenerateRequest:
    sampling = Sampling(max_new_tokens=limit, ignore_stop=ignore_stop)
    return GenerateRequest(id, np.array([1, 2], np.int32), sampling, NoiseKey(1, "test", "task", draw, 0), "session")


def test_the_noise_key_alone_decides() -> None:
    async def story() -> Iterator[list[int]]:
        engine = await made()
        same = [request("a"), request("b"), request("c", draw=1)]
        together = await asyncio.gather(*(engine.generate(each) for each in same))
        return (result.tokens.tolist() for result in together)

    first, second, other = asyncio.run(story())
    assert first == second != other


def test_logprobs_are_those_of_the_sampled_tokens() -> None:
    result = asyncio.run(make_and_ask(request()))
    np.testing.assert_allclose(result, np.full(8, -np.log(8)), rtol=1e-6)


async def make_and_ask(asked: GenerateRequest) -> list[float]:
    result = await (await made()).generate(asked)
    assert result.finish is Finish.LENGTH
    return list(result.logprobs.tolist())


def test_a_request_that_lives_through_an_update_says_so() -> None:
    async def story() -> list[tuple[int, int, int]]:
        engine = await made(version=1)
        running = asyncio.create_task(engine.generate(request(limit=20)))
        for _ in range(5):
            await asyncio.sleep(0)
        await updated(engine, 2)
        return [(span.version, span.start, span.stop) for span in (await running).spans]

    (first, start, change), (second, again, stop) = asyncio.run(story())
    assert (first, start, second, stop) == (1, 0, 2, 20)
    assert 0 < change == again < 20


def test_an_abort_ends_what_runs_and_nothing_that_comes_later() -> None:
    async def story() -> tuple[Finish, Finish]:
        engine = await made()
        running = asyncio.create_task(engine.generate(request(limit=20)))
        await asyncio.sleep(0)
        await engine.pause(PauseMode.ABORT)
        later = asyncio.create_task(engine.generate(request("later")))
        aborted = await running
        await engine.resume()
        return aborted.finish, (await later).finish

    assert asyncio.run(story()) == (Finish.ABORT, Finish.LENGTH)


def test_half_an_update_changes_nothing() -> None:
    async def story() -> int | None:
        engine = await made(version=3)
        await engine.pause(PauseMode.RETRACT)
        await engine.begin_update(UpdateManifest(4, Form.DISK))
        with pytest.raises(RunError, match="not received the whole update"):
            await engine.finish_update()
        await engine.discard_update()
        await engine.resume()
        return await engine.version()

    assert asyncio.run(story()) == 3


@pytest.mark.parametrize("wrong", [request(limit=31), request(limit=1)])
def test_what_does_not_fit_is_refused(wrong: GenerateRequest) -> None:
    if wrong.sampling.max_new_tokens == 1:
        wrong.tokens[0] = 8

    async def story() -> None:
        await (await made()).generate(wrong)

    with pytest.raises(RequestError, match=r"the context is 32|outside the vocabulary"):
        asyncio.run(story())


def test_temperature_zero_takes_the_likeliest() -> None:
    token, logprob = choose(np.array([0.0, 2.0, 1.0]), 0.0, uniform=0.0)
    assert token == 1
    assert logprob == pytest.approx(2 - np.log(1 + np.e**2 + np.e))
