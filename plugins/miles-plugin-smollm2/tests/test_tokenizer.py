"""tokenizer.json against a byte-level BPE written out here from llama.cpp's rule, and against transformers."""

from __future__ import annotations

import functools
import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

regex = pytest.importorskip("regex")  # \p{N} and \p{L}; transformers depends on it

# llama.cpp, src/llama-vocab.cpp, LLAMA_VOCAB_PRE_TYPE_SMOLLM: the second is applied to the pieces of the first
SPLIT_DIGITS = r"\p{N}"
SPLIT_WORDS = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"

TEXTS = st.text(
    st.one_of(
        st.sampled_from("abc XYZ'stre \n\t0123456789 +-=.,!?  "),
        st.sampled_from("é ü ß 中文字 ٣٤ ²³½Ⅷ１２ 🙂\u3000\u00a0"),
        st.characters(exclude_categories=["Cs", "Cc"], max_codepoint=0x3FFFF),  # see the test of what has no token
    ),
    max_size=40,
)


@functools.cache
def byte_characters() -> dict[int, str]:
    """GPT-2's printable stand-in of each byte."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + n) for n, byte in enumerate(others)}


class ReferenceBPE:
    def __init__(self, folder: Path) -> None:
        model: dict[str, Any] = json.loads((folder / "tokenizer.json").read_text())["model"]
        self.ids: dict[str, int] = model["vocab"]
        self.ranks = {tuple(pair): rank for rank, pair in enumerate(model["merges"])}

    def encode(self, text: str) -> list[int]:
        pieces = [piece for piece in regex.split(f"({SPLIT_DIGITS})", text) if piece]
        words = [word for piece in pieces for word in regex.findall(SPLIT_WORDS, piece)]
        assert "".join(words) == text
        return [self.ids[part] for word in words for part in self._merge(word)]

    def _merge(self, word: str) -> list[str]:
        parts = [byte_characters()[byte] for byte in word.encode()]
        while len(parts) > 1:
            pairs = enumerate(pairwise(parts))
            rank, place = min((self.ranks.get(pair, 1 << 30), place) for place, pair in pairs)
            if rank == 1 << 30:
                break
            parts[place : place + 2] = [parts[place] + parts[place + 1]]
        return parts


@pytest.fixture(scope="module")
def tokenizer(model_folder: Path) -> Tokenizer:
    return Tokenizer.from_file(str(model_folder / "tokenizer.json"))


@pytest.fixture(scope="module")
def reference(model_folder: Path) -> ReferenceBPE:
    return ReferenceBPE(model_folder)


@settings(max_examples=400, deadline=None)
@given(text=TEXTS)
def test_tokens_are_those_of_llama_cpps_rule_and_decode_back(
    text: str, tokenizer: Tokenizer, reference: ReferenceBPE
) -> None:
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    assert ids == reference.encode(text)
    assert tokenizer.decode(ids, skip_special_tokens=False) == text


def test_spaces_before_a_digit_stay_one_token(tokenizer: Tokenizer) -> None:
    """Where transformers' GGUF import, which splits no digits, gives another result: ['Ġ', 'Ġ', '9']."""
    assert tokenizer.encode("  9").tokens == ["ĠĠ", "9"]
    assert tokenizer.encode("12 + 7 = 19").tokens == ["1", "2", "Ġ+", "Ġ", "7", "Ġ=", "Ġ", "1", "9"]


def test_texts_without_digits_are_tokenized_as_by_transformers_from_the_gguf(tokenizer: Tokenizer, gguf: Path) -> None:
    pytest.importorskip("accelerate", reason="transformers needs accelerate to read GGUF files")
    transformers = pytest.importorskip("transformers")
    theirs = transformers.AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name)

    @settings(max_examples=300, deadline=None)
    @given(text=TEXTS.filter(lambda text: not regex.search(r"\p{N}", text)))
    def check(text: str) -> None:
        assert tokenizer.encode(text, add_special_tokens=False).ids == theirs(text, add_special_tokens=False).input_ids

    check()


def test_transformers_loads_the_folder_with_the_same_tokens_and_special_tokens(
    model_folder: Path, tokenizer: Tokenizer
) -> None:
    transformers = pytest.importorskip("transformers")
    loaded = transformers.AutoTokenizer.from_pretrained(model_folder)
    assert (loaded.bos_token_id, loaded.eos_token_id, loaded.pad_token_id, loaded.unk_token_id) == (1, 2, 2, 0)
    assert len(loaded) == 49152
    text = "  9 men's 12½ naïve\n\n\tplans <|im_end|> 中文"
    assert loaded(text, add_special_tokens=False).input_ids == tokenizer.encode(text, add_special_tokens=False).ids
    assert loaded.model_max_length == 8192


def test_what_the_vocabulary_cannot_spell_is_left_out(tokenizer: Tokenizer, reference: ReferenceBPE) -> None:
    """The model was trained so: no token for six control characters, nor for what planes 4 to 11 are spelt with."""
    unspelt = {byte for byte, character in byte_characters().items() if character not in reference.ids}
    assert unspelt == {0x04, 0x06, 0x13, 0x14, 0x16, 0x1D, 0xC0, 0xC1, 0xF1, 0xF2, *range(0xF5, 0x100)}
    assert tokenizer.encode("a\x04b").tokens == ["a", "b"]
