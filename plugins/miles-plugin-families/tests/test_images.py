"""Images in the families that take some: turns append, spans and counts fit, and the template writes the same."""

from __future__ import annotations

import base64
import random

import numpy as np
import pytest
from family_renderers import FAMILIES, renderer_of

from miles_core import ImageFile, bridged, rendered
from miles_core.testing import make_png
from miles_core.testing.families.programs import Bank, Harness

pytest.importorskip("PIL")
pytest.importorskip("transformers")

SEEING = [name for name, family in FAMILIES.items() if family.placeholder]
RED, WIDE = make_png(64, 48, seed=1), make_png(200, 40, seed=2)


def image(png: bytes) -> dict:
    return ImageFile.of(png).part


def text(words: str) -> dict:
    return {"type": "text", "text": words}


CONVERSATION = [
    {"role": "user", "content": [text("what is "), image(RED), text("this <|image_pad|>?")]},
    {"role": "assistant", "content": "A dot."},
    {"role": "user", "content": [image(WIDE), image(RED)]},
    {"role": "assistant", "content": "Two."},
    {"role": "user", "content": "And in words?"},
]


@pytest.mark.parametrize("name", SEEING)
def test_turns_with_images_append_and_their_spans_stay(name):
    renderer = renderer_of(name)
    whole = rendered(renderer, CONVERSATION)
    built = rendered(renderer, CONVERSATION[:1])
    tokens, spans = built.tokens, list(built.images)
    for place in (1, 3):
        said = [*renderer.encode(CONVERSATION[place]["content"]), renderer.stop_tokens[0]]
        tokens = np.append(tokens, said).astype(np.int32)
        more = bridged(renderer, tokens, CONVERSATION[place + 1 : place + 2])
        spans += [span.moved(len(tokens)) for span in more.images]
        tokens = np.append(tokens, more.tokens)
    assert tokens.tolist() == whole.tokens.tolist()
    assert [(s.start, s.stop, s.image.digest) for s in spans] == [
        (s.start, s.stop, s.image.digest) for s in whole.images
    ]
    assert [span.image.file for span in spans] == [RED, WIDE, RED]
    assert spans[0].image is spans[2].image
    pad = renderer._images.placeholder
    for span in spans:
        own = tokens[span.start : span.stop]
        rows = span.image.arrays["pixel_values"]
        assert (own == pad).all() and len(own) == len(rows) // 4
        assert tokens[span.start - 1] != pad and tokens[span.stop] != pad
    assert (tokens == pad).sum() == sum(span.stop - span.start for span in spans)


@pytest.mark.parametrize("name", ["qwen3-vl", "qwen3.8"])
def test_programs_of_a_harness_that_shows_images(name):
    renderer = renderer_of(name)
    bank = Bank.of(renderer, 10)
    shown = 0
    for seed in range(4):
        harness = Harness(renderer, bank, random.Random(seed), linear=seed % 2 == 0, images=True)
        harness.play(12)
        shown += sum(len(each.answers[-1].images) for each in harness.known)
    assert shown > 5


@pytest.mark.parametrize("name", SEEING)
def test_the_template_writes_the_same_and_the_processor_counts(name):
    renderer = renderer_of(name)
    said = [{"role": "user", "content": [text("what is "), image(RED), text("this?"), image(WIDE)]}]
    theirs = renderer.template_tokens(said)
    if theirs is None:
        pytest.skip("there is no template here")
    assert rendered(renderer, said).tokens.tolist() == theirs.tolist()


def test_text_alone_is_what_it_was():
    renderer = renderer_of("qwen3-vl")
    said = [{"role": "user", "content": [text("a"), text("b")]}]
    assert rendered(renderer, said).tokens.tolist() == renderer.render(said).tolist()
    assert rendered(renderer, said).images == ()


@pytest.mark.parametrize("name", ["qwen3", "kimi-k2.5", "inkling", "llama-3"])
def test_other_families_say_that_they_take_none(name):
    with pytest.raises(ValueError, match=f"family {name} takes none"):
        rendered(renderer_of(name), CONVERSATION[:1])


@pytest.mark.parametrize("role", ["system", "assistant"])
def test_only_users_and_tools_show_images(role):
    turn = {"role": role, "content": [image(RED)]}
    said = [turn, CONVERSATION[4]] if role == "system" else [CONVERSATION[4], turn]
    with pytest.raises(ValueError, match="only parts of type text"):
        rendered(renderer_of("qwen3-vl"), said)


def test_a_file_that_cannot_be_decoded_is_a_fault_of_the_message():
    cut = RED[:60]
    url = f"data:image/png;base64,{base64.b64encode(cut).decode()}"
    said = [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}]
    with pytest.raises(ValueError, match="cannot be decoded"):
        rendered(renderer_of("qwen3-vl"), said)


def test_a_tool_may_answer_with_an_image():
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    renderer = renderer_of("qwen3-vl")
    prompt = rendered(renderer, [{"role": "user", "content": "look"}], tools=[tool])
    called = renderer.encode('<tool_call>\n{"name": "look", "arguments": {}}\n</tool_call>')
    tokens = np.append(prompt.tokens, [*called, renderer.stop_tokens[0]]).astype(np.int32)
    answer = [{"role": "tool", "tool_call_id": "x", "content": [image(RED), text("there")]}]
    found = bridged(renderer, tokens, answer, tools=[tool])
    assert [span.image.file for span in found.images] == [RED]
