"""A model that sees, in the engine and in the trainer: both against transformers, and each against the other."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch
from miles_plugin_torch.engine.options import TorchEngineOptions
from miles_plugin_torch.engine.torch_engine import TorchEngine
from seeing import asking, make_image, prompt_of, reference_logprobs
from trainer_cases import make_trainer

from miles_core import (
    Batch,
    BuildContext,
    Delivery,
    Form,
    PauseMode,
    RequestError,
    Row,
    SequenceBuilder,
    UpdateManifest,
)

RED, BLUE = make_image(2, 3, seed=1), make_image(2, 3, seed=2)
TALL = make_image(4, 1, seed=3)


@asynccontextmanager
async def engine_of(files, **options):
    engine = TorchEngine(TorchEngineOptions(threads=1, **options), BuildContext(1, "engine-0", model=files))
    await engine.start()
    try:
        await publish(engine, files, 1)
        yield engine
    finally:
        await engine.close()


async def publish(engine, files, version):
    await engine.pause(PauseMode.RETRACT)
    await engine.begin_update(UpdateManifest(version, Form.DISK))
    await engine.load(Delivery(Form.DISK, "disk", {"path": str(files.path)}))
    assert await engine.finish_update() == version
    await engine.resume()


def rows_of(requests, results):
    made = []
    for asked, result in zip(requests, results, strict=True):
        row = SequenceBuilder()
        row.add(asked.tokens, asked.images)
        row.add_sampled(asked, result)
        made.append(row.build())
    return made


PROMPTS = [
    prompt_of([5, 6], RED, [7, 8]),
    prompt_of([5, 6], BLUE, [7, 8]),  # the same tokens, another image
    prompt_of([5, 6], RED, [7], TALL, [9, 9], BLUE, [3]),
    prompt_of([5, 6, 7, 8, 9]),
    prompt_of([5, 6], RED, [7, 8]),
]


@pytest.mark.parametrize("budget", [512, 5])
async def test_engine_trainer_and_transformers_agree(files, budget):
    """`budget` 5 cuts prompts, and images, into pieces."""
    requests = [asking(f"r{n}", prompt, temperature=0.8) for n, prompt in enumerate(PROMPTS)]
    async with engine_of(files, prefill_tokens=budget) as engine:
        assert engine.capabilities().images
        results = await asyncio.gather(*(engine.generate(each) for each in requests))
    sequences = rows_of(requests, results)
    assert not np.array_equal(results[0].logprobs, results[1].logprobs), "an image changes nothing"
    for sequence, asked in zip(sequences, requests, strict=True):
        theirs = reference_logprobs(files, sequence.tokens, asked.images, 0.8)
        place = len(asked.tokens)
        np.testing.assert_allclose(sequence.logprobs[place:], theirs[place - 1 :], atol=2e-5)
    for share in (True, False):
        trainer = make_trainer(files, share_prefix=share)
        assert trainer.facts().images
        for sequence, scores in zip(sequences, trainer.score(sequences), strict=True):
            np.testing.assert_allclose(scores, sequence.logprobs, atol=2e-5)


async def test_a_second_turn_with_another_image_uses_the_cache_of_the_first(files):
    async with engine_of(files) as engine:
        row = SequenceBuilder()
        row.add(*PROMPTS[0])
        for turn, image in enumerate((None, BLUE)):
            if image is not None:
                row.add(*prompt_of([4], image, [11, 12]))
            asked = replace(asking(f"t{turn}", (row.tokens, row.images)), affinity="s")
            result = await engine.generate(asked)
            row.add_sampled(asked, result, turn)
        assert result.cached_tokens >= len(PROMPTS[0][0])
    sequence = row.build()
    assert [span.image for span in sequence.images] == [RED, BLUE]
    theirs = reference_logprobs(files, sequence.tokens, sequence.images)
    ours = sequence.logprobs[1:]
    np.testing.assert_allclose(ours[sequence.sampled[1:]], theirs[sequence.sampled[1:]], atol=2e-5)
    (scores,) = make_trainer(files).score([sequence])
    np.testing.assert_allclose(scores, sequence.logprobs, atol=2e-5)


async def test_an_update_forgets_what_the_old_weights_saw(files, tmp_path):
    from seeing import make_model
    from transformers import Qwen3VLForConditionalGeneration

    other = make_model(tmp_path)
    model = Qwen3VLForConditionalGeneration.from_pretrained(other.path, dtype=torch.float32)
    with torch.no_grad():
        for parameter in model.model.visual.parameters():
            parameter.mul_(1.5)
    model.save_pretrained(other.path)
    async with engine_of(files) as engine:
        await engine.generate(asking("before", PROMPTS[0]))
        await publish(engine, other, 2)
        asked = asking("after", PROMPTS[0])
        result = await engine.generate(asked)
    (sequence,) = rows_of([asked], [result])
    theirs = reference_logprobs(other, sequence.tokens, asked.images)
    np.testing.assert_allclose(result.logprobs, theirs[len(asked.tokens) - 1 :], atol=2e-5)


async def test_a_step_changes_the_tower_that_saw(files):
    requests = [asking(f"r{n}", prompt) for n, prompt in enumerate(PROMPTS[:2])]
    async with engine_of(files) as engine:
        results = await asyncio.gather(*(engine.generate(each) for each in requests))
    sequences = rows_of(requests, results)
    trainer = make_trainer(files, correction=None)
    name = "model.visual.patch_embed.proj.weight"
    before = dict(trainer._model.named_parameters())[name].detach().clone()
    rows = [Row(each, np.ones(len(each), np.float32), f"t{n}", "g") for n, each in enumerate(sequences)]
    report = trainer.step(Batch(0, tuple(rows)))
    assert np.isfinite(report.metrics["loss/total"])
    assert not torch.equal(before, dict(trainer._model.named_parameters())[name])


async def test_what_does_not_fit_is_refused(files):
    async with engine_of(files) as engine:
        tokens, (span,) = PROMPTS[0]
        short = replace(span, stop=span.stop - 1)
        with pytest.raises(RequestError, match="features"):
            await engine.generate(replace(asking("short", (tokens, (short,)))))
        bare = replace(span, image=replace(RED, arrays={"other": np.zeros(1)}))
        with pytest.raises(RequestError, match="pixel_values"):
            await engine.generate(asking("bare", (tokens, (bare,))))
        assert len((await engine.generate(asking("good", PROMPTS[0]))).tokens)
        held = engine._decoder.vision
        assert not held._held and not held._features, "images of requests that ended are kept"
