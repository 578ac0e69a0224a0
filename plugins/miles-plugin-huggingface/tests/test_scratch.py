"""Models from scratch: loaded by transformers, drawn from the right distribution, kept under the right key."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from miles_plugin_huggingface.options import PRINTABLE, ScratchOptions
from miles_plugin_huggingface.scratch import ScratchModel
from miles_plugin_huggingface.scratch_renderer import ScratchRenderer
from pydantic import ValidationError
from safetensors.numpy import load_file
from tokenizers import Tokenizer

from miles_core import BuildContext, check_made

TEXT = st.text(st.sampled_from(PRINTABLE), max_size=20)


def scratch(run_seed: int = 1, **options: Any) -> ScratchModel:
    return ScratchModel(ScratchOptions(**options), BuildContext(seed=run_seed, name="model"))


@pytest.mark.parametrize(
    "options", [{}, {"tied": False}, {"kv_heads": 1, "intermediate": 40, "hidden": 24, "layers": 1}]
)
def test_transformers_loads_it_as_the_card_says(options: dict[str, Any]) -> None:
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.set_num_threads(1)
    files = scratch(**options).materialise()
    model, loading = transformers.AutoModelForCausalLM.from_pretrained(files.path, output_loading_info=True)
    assert not loading["missing_keys"] and not loading["unexpected_keys"] and not loading["mismatched_keys"]
    assert type(model).__name__ == files.card.architecture
    assert sum(parameter.numel() for parameter in model.parameters()) == files.card.parameters
    config = model.config
    assert (config.max_position_embeddings, config.vocab_size) == (files.card.context, files.card.vocabulary)
    assert (config.hidden_size, config.num_hidden_layers) == (files.card.hidden, files.card.layers)
    assert (config.eos_token_id,) == files.card.stop_tokens
    assert config.rope_parameters["rope_theta"] == 10000.0
    with torch.no_grad():
        assert torch.isfinite(model(torch.arange(9)[None]).logits).all()


def test_weights_are_normal_and_residual_writes_are_scaled() -> None:
    weights = load_file(scratch(hidden=256, layers=4).materialise().path / "model.safetensors")
    assert all((weight == 1).all() for name, weight in weights.items() if "norm" in name)
    for name, weight in weights.items():
        if weight.ndim == 2:
            expected = 0.02 / np.sqrt(8) if "o_proj" in name or "down_proj" in name else 0.02
            assert weight.std() == pytest.approx(expected, rel=0.05), name
            assert abs(weight.mean()) < 4 * expected / np.sqrt(weight.size), name
    flat = [weight.ravel()[:64] for weight in weights.values() if weight.ndim == 2]
    assert len({tuple(values) for values in flat}) == len(flat)  # no two matrices share their noise


def test_equal_options_share_a_folder_and_others_do_not() -> None:
    first = scratch().materialise().path
    assert scratch().materialise().path == first
    assert scratch(run_seed=9).materialise().path != first
    assert scratch(run_seed=9).describe() == scratch().describe()
    assert scratch(run_seed=9, seed=1).materialise().path == first
    check_made(first, contents=True)
    again = load_file(first / "model.safetensors")
    for file in first.iterdir():
        file.unlink()
    first.rmdir()
    anew = load_file(scratch().materialise().path / "model.safetensors")
    assert all(np.array_equal(again[name], anew[name]) for name in again)


@settings(max_examples=100, deadline=None)
@given(text=TEXT)
def test_the_renderer_agrees_with_the_written_tokenizer(text: str, scratch_folder: Path) -> None:
    tokenizer = Tokenizer.from_file(str(scratch_folder / "tokenizer.json"))
    ours = ScratchRenderer(PRINTABLE)
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    if not any(special in text for special in ("<pad>", "<bos>", "<eos>", "<sep>")):
        assert ours.encode(text).tolist() == ids
    assert (
        tokenizer.decode(ours.encode(text).tolist(), skip_special_tokens=False)
        == text
        == ours.decode(ours.encode(text))
    )


def test_transformers_tokenizes_the_rendered_text_to_the_rendered_tokens(scratch_folder: Path) -> None:
    loaded = pytest.importorskip("transformers").AutoTokenizer.from_pretrained(scratch_folder)
    ours = ScratchRenderer(PRINTABLE)
    tokens = ours.render([{"role": "user", "content": "3 + 4\n="}, {"role": "assistant", "content": "7"}])
    assert ours.decode(tokens) == "<bos>3 + 4\n=<sep>7<eos>"
    assert loaded(ours.decode(tokens), add_special_tokens=False).input_ids == tokens.tolist()
    assert (loaded.pad_token_id, loaded.bos_token_id, loaded.eos_token_id) == (0, 1, 2)


@settings(max_examples=100, deadline=None)
@given(texts=st.lists(TEXT, min_size=2, max_size=5), answer=TEXT)
def test_rendering_is_append_only_and_bridges(texts: list[str], answer: str) -> None:
    ours = ScratchRenderer(PRINTABLE)
    first = [{"role": "user", "content": text} for text in texts]
    more = [{"role": "tool", "content": "t"}, {"role": "user", "content": answer}]
    whole = ours.render([*first, {"role": "assistant", "content": answer}, *more]).tolist()
    prompt = ours.render(first)
    for sampled in ([*ours.encode(answer), 2], [*ours.encode(answer)]):
        turn = np.array([*prompt, *sampled], dtype=np.int32)
        assert [*turn, *ours.bridge(turn, more)] == whole
        parsed = ours.parse(np.array(sampled, dtype=np.int32))
        assert parsed.message["content"] == answer
        assert parsed.complete is (sampled[-1:] == [2])


def test_a_character_without_a_token_is_named() -> None:
    with pytest.raises(ValueError, match="no token for '4é'"):
        ScratchRenderer("123").render([{"role": "user", "content": "14é"}])


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"hidden": 30, "heads": 4}, "not an even size"),
        ({"hidden": 12, "heads": 4}, "not an even size"),
        ({"heads": 4, "kv_heads": 3}, "does not divide"),
        ({"characters": "aba"}, "more than once: 'a'"),
        ({"characters": ""}, "at least 1"),
        ({"layers": 0}, "greater than 0"),
        ({"widht": 3}, "Extra inputs"),
    ],
)
def test_bad_options_are_refused(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValidationError, match=says):
        ScratchOptions(**options)


def test_options_are_json() -> None:
    options = ScratchOptions(characters="01\n")
    assert ScratchOptions.model_validate(json.loads(options.model_dump_json())) == options
