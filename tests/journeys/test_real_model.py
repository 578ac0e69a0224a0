"""The real model through engine and trainer: equal weights give equal log-probs, packed or not, at any temperature."""

from __future__ import annotations

import asyncio
from pathlib import Path

import numpy as np
import pytest

from miles_core import BuildContext, ComponentRef, NoiseKey, Sampling, Sequence, UpdateManifest
from miles_core.contracts.engine import GenerateRequest, PauseMode
from miles_core.host.activate import open_registry
from miles_core.rollout.single_turn import sampled_sequence

TOLERANCE = 1e-4
PROMPTS = ["What is 4 + 3?", "Name three colours.", "Write one sentence about the sea."]


@pytest.fixture(scope="module")
def parts() -> tuple[ComponentRef, BuildContext]:
    registry = open_registry(["torch", "smollm2"])
    model = registry.ref("model", "smollm2", {}).build(BuildContext(1, "model"))
    files = model.materialise()
    transport = registry.ref("transport", "shared-memory", {})
    context = BuildContext(1, "worker", model=files, parts={"transport": transport})
    return registry, model, context


async def _sample(engine, trainer, transport, renderer, temperature: float) -> list[Sequence]:
    """Publish the trainer's weights to the engine, then sample every prompt twice."""
    await engine.start()
    await engine.pause(PauseMode.RETRACT)
    await engine.begin_update(UpdateManifest(1, tensors=trainer.facts().tensors))
    await engine.load(await asyncio.to_thread(trainer.send, 1))
    assert await engine.finish_update() == 1
    trainer.release(1)
    await engine.resume()
    sampling = Sampling(temperature, max_new_tokens=24, stop_tokens=renderer.stop_tokens)
    requests = [
        GenerateRequest(
            f"{number}.{index}",
            renderer.render([{"role": "user", "content": prompt}]),
            sampling,
            NoiseKey(1, "test", str(number), 0, index),
            str(number),
        )
        for number, prompt in enumerate(PROMPTS)
        for index in range(2)
    ]
    results = await asyncio.gather(*(engine.generate(request) for request in requests))
    await engine.close()
    return [sampled_sequence(q.tokens, r, q) for q, r in zip(requests, results, strict=True)]


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_engine_and_trainer_agree_on_every_sampled_token(parts, temperature):
    registry, model, context = parts
    trainer = registry.ref("trainer", "torch", {"threads": 2}).build(context)
    engine = registry.ref("engine", "torch", {"threads": 2}).build(context)
    sequences = asyncio.run(_sample(engine, trainer, context.part("transport"), model.renderer(), temperature))
    assert sum(s.sampled_count for s in sequences) > 60
    for sequence, scored in zip(sequences, trainer.score(sequences), strict=True):
        assert sequence.logprobs is not None
        assert {span.temperature for span in sequence.spans} == {temperature}
        np.testing.assert_allclose(
            scored[sequence.sampled], sequence.logprobs[sequence.sampled], atol=TOLERANCE, rtol=0
        )


def test_an_exported_model_is_one_that_transformers_samples(parts, tmp_path: Path):
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    registry, model, context = parts
    trainer = registry.ref("trainer", "torch", {"threads": 2}).build(context)
    trainer.export(tmp_path)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    exported = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    chat = [{"role": "user", "content": "What is the capital of France?"}]
    rendered = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    ours = model.renderer().render(chat)
    assert rendered["input_ids"][0].tolist() == ours.tolist()
    output = exported.generate(**rendered, max_new_tokens=16, do_sample=False)
    assert "Paris" in tokenizer.decode(output[0, len(ours) :])
