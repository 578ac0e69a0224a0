"""The checks of a family that takes images: turns with images only append, and the template writes the same."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from miles_core.contracts.images import ImageRenderer, Rendered, bridged, has_images, rendered
from miles_core.contracts.model import Renderer
from miles_core.testing.families import pictures
from miles_core.testing.families.conversations import TEXTS
from miles_core.testing.families.report import Tally
from miles_core.types.image import ImageSpan
from miles_core.types.image_file import ImageFile
from miles_core.types.task import Message

COUNT = 12
STAND_IN = "the processor of images is not the checkpoint's own: how many placeholders it has is not known here"


def check_images(renderer: Renderer, count: int = COUNT) -> dict[str, Tally]:
    """name of the check -> what came of it; empty for a renderer that takes no images."""
    if not isinstance(renderer, ImageRenderer) or not _takes_some(renderer):
        return {}
    tallies = {"images": Tally(), "image-parity": Tally()}
    if getattr(renderer, "images_stand_in", False):
        tallies["image-parity"].skip(STAND_IN)
    _loses_none(tallies["images"], renderer)
    for number in range(count):
        messages = _conversation(random.Random(f"images/{number}"))
        try:
            _appends(tallies["images"], renderer, messages)
            _parity(tallies["image-parity"], renderer, messages)
        except ValueError as error:
            tallies["images"].refuse(str(error))
    return tallies


def _takes_some(renderer: Renderer) -> bool:
    try:
        rendered(renderer, [{"role": "user", "content": [ImageFile.of(pictures.PICTURES[0]).part]}])
    except ValueError:
        return False
    return True


def _conversation(rng: random.Random) -> list[Message]:
    """Users who show images, one at least, and assistants who answer in words; it ends where the assistant speaks
    next."""
    messages: list[Message] = []
    for _ in range(rng.randint(1, 3)):
        messages.append({"role": "user", "content": pictures.content(rng, rng.choice(TEXTS[:5]))})
        messages.append({"role": "assistant", "content": rng.choice(("A dot.", "4", "é"))})
    if not has_images(messages):
        shown = ImageFile.of(rng.choice(pictures.PICTURES)).part
        messages[-2] = {"role": "user", "content": [shown, {"type": "text", "text": messages[-2]["content"]}]}
    return messages[:-1]


def _loses_none(tally: Tally, renderer: Renderer) -> None:
    """`render`, which has nowhere to put an image, refuses it."""
    said: list[Message] = [{"role": "user", "content": [ImageFile.of(pictures.PICTURES[0]).part]}]
    try:
        renderer.render(said)
    except ValueError:
        tally.note(True, str)
    else:
        tally.fail("render takes a message with an image and loses it")


def _appends(tally: Tally, renderer: Renderer, messages: Sequence[Message]) -> None:
    """Built turn by turn, the images stay at their places, and they are those of the messages."""
    built = rendered(renderer, messages[:1])
    tokens, images = built.tokens, list(built.images)
    for place, following in pairwise(range(1, len(messages) + 2, 2)):
        if place >= len(messages):
            break
        said = [*renderer.encode(str(messages[place]["content"])).tolist(), renderer.stop_tokens[0]]
        tokens = np.append(tokens, said).astype(np.int32)
        more = bridged(renderer, tokens, messages[place + 1 : following])
        images += [span.moved(len(tokens)) for span in more.images]
        tokens = np.append(tokens, more.tokens)
    fault = _fault(renderer, Rendered(tokens, tuple(images)), messages)
    tally.note(not fault, lambda: f"{fault} ({len(messages)} messages)")


def _fault(renderer: Renderer, found: Rendered, messages: Sequence[Message]) -> str:
    """What is wrong with the images of a conversation; "" when nothing is."""
    if pictures.files_seen(found.images) != pictures.files_of(messages):
        return "other images came out than went in"
    seen: dict[str, ImageSpan] = {}
    for span in found.images:
        own, first = found.tokens[span.start : span.stop], seen.setdefault(span.image.digest, span)
        if not np.array_equal(own, found.tokens[first.start : first.stop]):
            return "one image has other placeholders when it is shown again"
        if not span.image.intact:
            return "an image's digest is not that of its content"
    again = rendered(renderer, messages)
    if pictures.placed(rendered(renderer, messages).images) != pictures.placed(again.images):
        return "two renderings of one conversation differ"
    return ""


def _parity(tally: Tally, renderer: Renderer, messages: Sequence[Message]) -> None:
    """Of the first turn, which every template writes as it stands."""
    template: Any = getattr(renderer, "template_tokens", None)
    theirs = None if template is None else template(messages[:1])
    if theirs is not None:
        ours = rendered(renderer, messages[:1]).tokens
        tally.note(np.array_equal(ours, theirs), lambda: f"{len(ours)} tokens where the template has {len(theirs)}")
