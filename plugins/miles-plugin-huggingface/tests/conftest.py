"""Small real models, written by transformers and by this package."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from miles_plugin_huggingface.options import ScratchOptions
from miles_plugin_huggingface.scratch import ScratchModel, write_tokenizer

from miles_core import BuildContext


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.setenv("MILES_CACHE", str(cache))
    return cache


@pytest.fixture(scope="session")
def scratch_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MILES_CACHE", str(tmp_path_factory.mktemp("models")))
        options = ScratchOptions(hidden=32, layers=2, heads=4, kv_heads=2, intermediate=48, context=64)
        return ScratchModel(options, BuildContext(seed=3, name="model")).materialise().path


@pytest.fixture
def folder(scratch_folder: Path, tmp_path: Path) -> Path:
    """A copy to damage."""
    return Path(shutil.copytree(scratch_folder, tmp_path / "model"))


@pytest.fixture(scope="session")
def qwen_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Another architecture, saved in shards, with a mixture of experts."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.set_num_threads(1)
    path = tmp_path_factory.mktemp("qwen")
    config = transformers.Qwen3MoeConfig(
        vocab_size=99,
        hidden_size=16,
        intermediate_size=32,
        moe_intermediate_size=8,
        num_hidden_layers=2,
        num_experts=4,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=8,
        max_position_embeddings=77,
        eos_token_id=[2, 5],
        tie_word_embeddings=False,
    )
    model = transformers.Qwen3MoeForCausalLM(config)
    model.save_pretrained(path, max_shard_size="10KB")
    write_tokenizer(path / "tokenizer.json", "".join(chr(code) for code in range(32, 127)))
    (path / "parameters").write_text(str(sum(parameter.numel() for parameter in model.parameters())))
    return path
