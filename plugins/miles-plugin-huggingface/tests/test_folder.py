"""Cards and checks of directories that transformers wrote, whole and damaged."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from miles_plugin_huggingface.model import HuggingFaceModel
from miles_plugin_huggingface.options import HuggingFaceOptions

from miles_core import BuildContext, RequestError

CONTEXT = BuildContext(seed=0, name="model")

SETUP = """
from miles_core import BuildContext, RequestError
from miles_plugin_huggingface.model import HuggingFaceModel
from miles_plugin_huggingface.options import HuggingFaceOptions
m = HuggingFaceModel(HuggingFaceOptions({options}), BuildContext(seed=0, name="model"))
"""


def model(path: Path | str, **options: Any) -> HuggingFaceModel:
    return HuggingFaceModel(HuggingFaceOptions(path=str(path), **options), CONTEXT)


def edit(path: Path, **changes: Any) -> None:
    """Change keys of a JSON file; None removes."""
    data = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({key: value for key, value in data.items() if value is not None}))


def test_the_card_of_a_sharded_mixture_of_experts(qwen_folder: Path) -> None:
    card = model(qwen_folder).describe()
    assert card.architecture == "Qwen3MoeForCausalLM"
    assert (card.context, card.vocabulary, card.hidden, card.layers, card.experts) == (77, 99, 16, 2, 4)
    assert card.stop_tokens == (2, 5)
    assert card.parameters == int((qwen_folder / "parameters").read_text())
    assert not card.tied_embeddings
    assert len(list(qwen_folder.glob("*.safetensors"))) > 1
    assert model(qwen_folder).materialise().path == qwen_folder


def test_parameters_of_a_tied_model_are_those_that_torch_counts(scratch_folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    loaded = transformers.AutoModelForCausalLM.from_pretrained(scratch_folder)
    card = model(scratch_folder).describe()
    assert card.parameters == sum(parameter.numel() for parameter in loaded.parameters())
    assert card.tied_embeddings


def test_a_matrix_that_is_stored_twice_is_counted_once(folder: Path) -> None:
    from safetensors.numpy import load_file, save_file

    count = model(folder).describe().parameters
    weights = load_file(folder / "model.safetensors")
    save_file(weights | {"lm_head.weight": weights["model.embed_tokens.weight"].copy()}, folder / "model.safetensors")
    assert model(folder).describe().parameters == count


def test_context_can_be_shortened_but_not_lengthened(folder: Path) -> None:
    assert model(folder, context=10).describe().context == 10
    with pytest.raises(RequestError, match="longer than the model's own 64"):
        model(folder, context=65).describe()


def test_nothing_heavy_is_imported(scratch_folder: Path) -> None:
    code = SETUP.format(options=f"path={str(scratch_folder)!r}") + (
        "m.materialise(), m.renderer()\n"
        "import sys; print([n for n in ('torch', 'transformers', 'huggingface_hub') if n in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def truncate(folder: Path) -> None:
    data = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(data[:-100])


def no_header(folder: Path) -> None:
    (folder / "model.safetensors").write_bytes(b"PK not a model")


def shards_gone(folder: Path) -> None:
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a": "gone.safetensors"}}))


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda f: (f / "config.json").unlink(), "config.json is missing"),
        (lambda f: (f / "config.json").write_text("{"), "cannot be read as JSON"),
        (lambda f: (f / "config.json").write_text("[]"), "expected a JSON object, found list"),
        (lambda f: edit(f / "config.json", hidden_size=None), "has no hidden_size"),
        (lambda f: edit(f / "config.json", architectures=None), "has no architectures"),
        (lambda f: (f / "tokenizer.json").unlink(), "tokenizer.json is missing"),
        (lambda f: (f / "model.safetensors").unlink(), "no safetensors weights"),
        (truncate, "truncated: .* bytes, expected"),
        (no_header, "no safetensors file"),
        (shards_gone, "cannot be read: No such file"),
        (
            lambda f: edit(f / "config.json", hidden_size=40),
            r"embed_tokens.weight has shape \[100, 32\], .* \[100, 40\]",
        ),
        (lambda f: edit(f / "config.json", num_key_value_heads=4), r"k_proj.weight has shape \[16, 32\].* \[32, 32\]"),
        (lambda f: edit(f / "config.json", num_hidden_layers=3), "layers.2.input_layernorm.weight is missing"),
        (lambda f: edit(f / "config.json", num_hidden_layers=1), "of a layer that the configuration has not"),
        (lambda f: edit(f / "config.json", tie_word_embeddings=False), "lm_head.weight is missing"),
    ],
)
def test_damage_is_named(damage: Any, says: str, folder: Path) -> None:
    model(folder).materialise()
    damage(folder)
    with pytest.raises(RequestError, match=says) as caught:
        model(folder).materialise()
    assert caught.value.exit_code == 2
    assert str(folder) in str(caught.value)


def test_several_faults_come_at_once(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()
    truncate(folder)
    with pytest.raises(RequestError) as caught:
        model(folder).materialise()
    assert "tokenizer.json is missing" in str(caught.value)
    assert "truncated" in str(caught.value)


def test_a_broken_tokenizer_is_named(folder: Path) -> None:
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(RequestError, match="tokenizer cannot be read"):
        model(folder).renderer()


@pytest.mark.parametrize("path", ["./no/such/folder", "/no/such/folder", "a/b/c"])
def test_a_folder_that_does_not_exist(path: str) -> None:
    with pytest.raises(RequestError, match="does not exist"):
        model(path).describe()


def test_a_file_is_no_folder(folder: Path) -> None:
    with pytest.raises(RequestError, match="is a file"):
        model(folder / "config.json").describe()


@pytest.mark.parametrize("method", ["describe", "materialise", "renderer"])
def test_a_hub_id_without_network_says_what_to_do(method: str, tmp_path: Path) -> None:
    """In a process of its own: the hub's library reads these variables when it is imported."""
    code = SETUP.format(options="path='someone/some-model', revision='v1'") + (
        f"try: m.{method}()\nexcept RequestError as error: print(error)"
    )
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert "someone/some-model @ v1" in done.stdout
    assert "give its folder as `path`" in done.stdout


def test_a_hub_id_is_served_from_the_hubs_cache(scratch_folder: Path, tmp_path: Path) -> None:
    """Offline, with a snapshot laid out as the hub's library keeps it."""
    commit = "0" * 40
    base = tmp_path / "hub" / "models--someone--small"
    (base / "refs").mkdir(parents=True)
    (base / "refs" / "main").write_text(commit)
    (base / "snapshots").mkdir()
    (base / "snapshots" / commit).symlink_to(scratch_folder)
    code = SETUP.format(options="path='someone/small'") + (
        "files = m.materialise()\n"
        "print(files.card.name, files.path, m.renderer().stop_tokens, m.describe() == files.card)"
    )
    environment = {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout.split() == ["someone/small", str(base / "snapshots" / commit), "(2,)", "True"]
