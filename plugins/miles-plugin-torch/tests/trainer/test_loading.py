"""Model folders that are missing, damaged or of another shape; architectures that the callback cannot honour."""

from __future__ import annotations

import dataclasses
import json
import shutil

import pytest
import torch
from miles_plugin_torch.attention import attending, supports
from miles_plugin_torch.loading import load_model
from trainer_cases import save_tiny
from transformers import AutoModelForCausalLM, Gemma2Config, LlamaConfig, MistralConfig, Qwen3Config

from miles_core import RequestError, RunError


@pytest.fixture
def folder(tmp_path):
    return save_tiny("qwen3", tmp_path / "model")


def edit_config(files, **changed):
    path = files.path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changed}))


def test_a_missing_folder(folder):
    shutil.rmtree(folder.path)
    with pytest.raises(RequestError, match=r"has no config.json"):
        load_model(folder)


@pytest.mark.parametrize("damage", ["truncated", "missing"])
def test_damaged_weights(folder, damage):
    weights = folder.path / "model.safetensors"
    if damage == "missing":
        weights.unlink()
    else:
        weights.write_bytes(weights.read_bytes()[:-100])
    with pytest.raises(RequestError, match="could not be loaded") as caught:
        load_model(folder)
    assert str(folder.path) in str(caught.value)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"num_hidden_layers": 4, "layer_types": None}, "missing keys: model.layers.3"),
        ({"num_hidden_layers": 2, "layer_types": None}, "unexpected keys: model.layers.2"),
        ({"intermediate_size": 44}, "could not be loaded|mismatched keys"),
        ({"num_hidden_layers": 4}, "must be equal to the number of `layer_types`"),
    ],
)
def test_weights_of_other_shapes(folder, changed, message):
    edit_config(folder, **changed)
    with pytest.raises(RequestError, match=message):
        load_model(folder)


def test_a_builder(folder, monkeypatch):
    built = AutoModelForCausalLM.from_pretrained(folder.path)
    monkeypatch.setattr("trainer_cases.build_it", lambda path: built, raising=False)
    model = load_model(dataclasses.replace(folder, builder="trainer_cases:build_it"))
    assert model is built
    assert model.config._attn_implementation == "miles_torch"


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (LlamaConfig(), None),
        (Qwen3Config(), None),
        (MistralConfig(sliding_window=None), None),
        (MistralConfig(sliding_window=64), "sliding-window"),
        (Qwen3Config(use_sliding_window=True, max_window_layers=1, num_hidden_layers=2), "sliding_attention"),
        (Gemma2Config(), "sliding_attention"),
        (Gemma2Config(layer_types=["full_attention"] * 26), "attn_logit_softcapping"),
        (LlamaConfig(rope_parameters={"rope_type": "dynamic", "factor": 2.0, "rope_theta": 1e4}), "longest sequence"),
    ],
)
def test_what_is_supported(config, reason):
    found = supports(config)
    assert found is None if reason is None else reason in found


def test_an_unsupported_model_is_refused_with_the_reason(folder):
    edit_config(folder, use_sliding_window=True, max_window_layers=1, sliding_window=4, layer_types=None)
    with pytest.raises(RequestError, match="cannot run on the torch plugin: it has layers of type sliding_attention"):
        load_model(folder)


def test_what_a_callback_would_not_see_is_refused(folder):
    model = load_model(folder)
    tokens = torch.arange(4)[None]
    with pytest.raises(RunError, match="outside of `attending`"):
        model(input_ids=tokens)

    def attend(layer, q, k, v, scale):
        return q

    with attending(attend):
        model(input_ids=tokens)
        with pytest.raises(RunError, match=r"a batch of 2"):
            model(input_ids=tokens.expand(2, -1))
        with pytest.raises(RunError, match=r"attention_mask"):
            model(input_ids=tokens, attention_mask=torch.ones(1, 1, 4, 4))
        with pytest.raises(RunError, match=r"position_bias"):
            model(input_ids=tokens, position_bias=torch.zeros(4, 4))
