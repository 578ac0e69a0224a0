"""Scoring, what is sent, checkpoints, export."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from miles_plugin_torch.trainer.options import TorchTrainerOptions
from miles_plugin_torch.trainer.tensor_file import write_tensors
from miles_plugin_torch.trainer.torch_trainer import TorchTrainer
from safetensors import safe_open
from safetensors.torch import load_file
from trainer_cases import (
    HalvingCase,
    KeptTransport,
    PenaltyCase,
    SupervisedCase,
    make_trainer,
    plain_logprobs,
    plain_model,
    random_rows,
    ref,
    save_tiny,
    weights_of,
)
from transformers import AutoModelForCausalLM

from miles_core import Batch, BuildContext, ComponentRef, RequestError, RunError


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
def test_score(tiny, temperature):
    rows = random_rows(np.random.default_rng(1), temperature=temperature)
    scores = make_trainer(tiny, micro_tokens=64).score([row.sequence for row in rows])
    model = plain_model(tiny)
    for row, found in zip(rows, scores, strict=True):
        with torch.no_grad():
            expected = plain_logprobs(model, row.sequence).numpy()
        assert found.dtype == np.float32
        assert np.abs(found - expected).max() < 2e-5


def test_what_is_sent_is_the_checkpoint_file(tiny):
    """Same names, shapes and bytes as the safetensors file, each tied weight once."""
    trainer = make_trainer(tiny)
    trainer.send(1)
    with safe_open(tiny.path / "model.safetensors", "pt") as file:
        expected = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    sent = {info.name: (info, data) for info, data in KeptTransport.sent[1]}
    assert set(sent) == set(expected)
    for name, (info, data) in sent.items():
        assert info.shape == tuple(expected[name].shape) and info.dtype == "float32"
        assert data.dtype == np.uint8 and len(data) == info.bytes
        assert np.array_equal(data.view(np.float32), expected[name].numpy().ravel())
    assert tuple(info for info, _ in KeptTransport.sent[1]) == trainer.facts().tensors
    assert trainer.facts().parameters == tiny.card.parameters
    trainer.release(1)
    assert 1 not in KeptTransport.sent


def precision(name: str, factory: str) -> ComponentRef:
    return ComponentRef("precision", name, factory, "miles_core.contracts.options:NoOptions", {}, "", "")


def test_bfloat16_keeps_float32_weights_and_the_precision_sends_them_rounded(llama):
    rows = random_rows(np.random.default_rng(2))
    trainer = make_trainer(llama, precision=precision("bf16", "miles_core.weights.bf16:Bf16"), dtype="bfloat16")
    found = trainer.score([row.sequence for row in rows])
    exact = make_trainer(llama).score([row.sequence for row in rows])
    worst = max(np.abs(a - b).max() for a, b in zip(found, exact, strict=True))
    assert 1e-4 < worst < 1.0
    trainer.step(Batch(0, tuple(rows)))
    assert all(p.dtype == torch.float32 for p in trainer._model.parameters())
    trainer.send(2)
    assert tuple(info for info, _ in KeptTransport.sent[2]) == trainer.facts().tensors
    assert {info.dtype for info, _ in KeptTransport.sent[2]} == {"bfloat16"}
    weights = trainer._model.state_dict()
    for info, data in KeptTransport.sent[2]:
        sent = torch.from_numpy(data.copy()).view(torch.bfloat16)
        assert torch.equal(sent, weights[info.name].flatten().to(torch.bfloat16))


@pytest.mark.parametrize("loss", [SupervisedCase, PenaltyCase])
@pytest.mark.parametrize("optimizer_steps", [1, 2])
def test_a_resumed_trainer_continues_bitwise(tiny, tmp_path, loss, optimizer_steps):
    rng = np.random.default_rng(3)
    batches = [Batch(i, tuple(random_rows(rng, groups=2))) for i in range(4)]
    options = {
        "loss": loss, "optimizer_steps": optimizer_steps, "schedule": "cosine", "warmup_steps": 2, "total_steps": 20,
    }  # fmt: skip
    whole = make_trainer(tiny, **options)
    for batch in batches[:2]:
        whole.step(batch)
    whole.save(tmp_path)
    resumed = make_trainer(tiny, **options)
    resumed.load(tmp_path)
    for batch in batches[2:]:
        assert whole.step(batch).metrics == resumed.step(batch).metrics
    assert all(torch.equal(a, b) for a, b in zip(weights_of(whole).values(), weights_of(resumed).values(), strict=True))


def test_a_new_phase_keeps_weights_and_optimizer_and_takes_its_reference_then(llama):
    rng = np.random.default_rng(4)
    trainer = make_trainer(llama, loss=SupervisedCase, correction=None)
    trainer.step(Batch(0, tuple(random_rows(rng, demonstration=True))))
    trainer.begin_phase({"loss": ref("loss", PenaltyCase), "correction": ref("correction", HalvingCase)})
    metrics = trainer.step(Batch(1, tuple(random_rows(rng)))).metrics
    assert metrics["loss/distance"] == pytest.approx(0.0, abs=1e-9)
    assert "correction/clipped" in metrics
    assert trainer._optimizer.steps == 2


def test_loading_another_models_checkpoint_changes_nothing(llama, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "saved").mkdir()
    other = save_tiny("qwen3", tmp_path / "model")
    make_trainer(other).save(tmp_path / "saved")
    trainer = make_trainer(llama)
    before = weights_of(trainer)
    with pytest.raises(RequestError, match="belongs to another model"):
        trainer.load(tmp_path / "saved")
    assert all(torch.equal(a, b) for a, b in zip(before.values(), weights_of(trainer).values(), strict=True))


@pytest.mark.parametrize("file", ["model.safetensors", "optimizer.safetensors", "trainer.json"])
def test_a_truncated_checkpoint(llama, tmp_path, file):
    make_trainer(llama).save(tmp_path)
    whole = (tmp_path / file).read_bytes()
    (tmp_path / file).write_bytes(whole[: len(whole) // 2])
    with pytest.raises(RequestError, match="cannot be read"):
        make_trainer(llama).load(tmp_path)


def test_a_checkpoint_of_other_trained_layers(llama, tmp_path):
    trainer = make_trainer(llama, train={"last_layers": 1})
    trainer.step(Batch(0, tuple(random_rows(np.random.default_rng(5)))))
    trainer.save(tmp_path)
    with pytest.raises(RequestError, match="other weights than these options train"):
        make_trainer(llama).load(tmp_path)


def test_a_tensor_file_is_what_safetensors_reads(tmp_path):
    tensors = {
        "a": torch.arange(6.0).view(2, 3).T,
        "b": torch.tensor(3.5),
        "c": torch.tensor([1, 2], dtype=torch.uint8),
        "d": torch.randn(5).bfloat16(),
        "empty": torch.zeros(0, 4),
    }
    write_tensors(tensors, tmp_path / "x.safetensors")
    found = load_file(tmp_path / "x.safetensors")
    assert set(found) == set(tensors)
    assert all(found[name].dtype == value.dtype and torch.equal(found[name], value) for name, value in tensors.items())


def test_export_loads_in_plain_transformers(tiny, tmp_path):
    rows = random_rows(np.random.default_rng(6))
    trainer = make_trainer(tiny)
    trainer.step(Batch(0, tuple(rows)))
    trainer.export(tmp_path)
    assert (tmp_path / "tokenizer.json").read_text() == (tiny.path / "tokenizer.json").read_text()
    plain = AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32, attn_implementation="sdpa")
    assert plain.config._attn_implementation == "sdpa"
    ours = trainer.score([row.sequence for row in rows])
    for row, found in zip(rows, ours, strict=True):
        with torch.no_grad():
            assert np.abs(plain_logprobs(plain, row.sequence).numpy() - found).max() < 2e-5


def test_a_trainer_without_its_parts(llama):
    trainer = TorchTrainer(TorchTrainerOptions(), BuildContext(seed=1, name="teacher", model=llama))
    with pytest.raises(RunError, match="no loss"):
        trainer.step(Batch(0, tuple(random_rows(np.random.default_rng(7)))))
    with pytest.raises(RunError, match="no transport"):
        trainer.send(1)
    with pytest.raises(RequestError, match="needs a model"):
        TorchTrainer(TorchTrainerOptions(), BuildContext(seed=1, name="nothing"))
