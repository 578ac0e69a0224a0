"""The conversion against transformers' own import of the same GGUF file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from miles_plugin_smollm2.facts import CARD
from safetensors import safe_open


def test_every_weight_equals_what_transformers_reads_from_the_gguf(model_folder: Path, gguf: Path) -> None:
    pytest.importorskip("accelerate", reason="transformers needs accelerate to read GGUF files")
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.set_num_threads(1)
    load = transformers.AutoModelForCausalLM.from_pretrained
    ours = load(model_folder, dtype=torch.float32).eval()
    theirs = load(gguf.parent, gguf_file=gguf.name, dtype=torch.float32).eval()

    expected = dict(theirs.named_parameters())
    found = dict(ours.named_parameters())
    assert found.keys() == expected.keys()
    assert [name for name in expected if not torch.equal(found[name], expected[name])] == []
    assert sum(parameter.numel() for parameter in found.values()) == CARD.parameters
    tokens = torch.arange(0, 49152, 2048)[None]
    with torch.no_grad():  # the configurations too: rope, norm epsilon, tied head
        assert torch.equal(ours(tokens).logits, theirs(tokens).logits)


def test_the_card_says_what_the_converted_folder_is(model_folder: Path) -> None:
    config = json.loads((model_folder / "config.json").read_text())
    assert config["architectures"] == [CARD.architecture]
    assert config["max_position_embeddings"] == CARD.context
    assert config["vocab_size"] == CARD.vocabulary
    assert config["hidden_size"] == CARD.hidden
    assert config["num_hidden_layers"] == CARD.layers
    assert (config["eos_token_id"],) == CARD.stop_tokens
    assert config["tie_word_embeddings"] is CARD.tied_embeddings
    with safe_open(model_folder / "model.safetensors", framework="numpy") as weights:
        sizes = [weights.get_slice(name).get_shape() for name in weights.keys()]  # noqa: SIM118 (no mapping)
    count = 0
    for size in sizes:
        product = 1
        for dimension in size:
            product *= dimension
        count += product
    assert count == CARD.parameters
