"""Images in generated conversations: what a harness may put beside its words, and how it may spell it again."""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import Sequence
from typing import Any

from miles_core.contracts.images import IMAGE_PART
from miles_core.testing.fakes.png import make_png
from miles_core.types.image import ImageSpans
from miles_core.types.image_file import ImageFile
from miles_core.types.task import Message

Json = dict[str, Any]

PICTURES = tuple(make_png(width, height, seed=width) for width, height in ((8, 8), (64, 48), (33, 90), (120, 20)))


def content(rng: random.Random, text: str) -> Any:
    """The text, or parts with one image or two and it among them."""
    if rng.random() < 0.5:
        return text
    parts = [ImageFile.of(rng.choice(PICTURES)).part for _ in range(rng.choice((1, 1, 2)))]
    parts.insert(rng.randint(0, len(parts)), {"type": "text", "text": text})
    return parts


def files_of(messages: Sequence[Message]) -> list[str]:
    """SHA-256 of the file of each image, in order."""
    parts = (part for message in messages if isinstance(message["content"], list) for part in message["content"])
    return [hashlib.sha256(ImageFile.of_part(part).data).hexdigest() for part in parts if part["type"] == IMAGE_PART]


def files_seen(images: ImageSpans) -> list[str]:
    return [hashlib.sha256(span.image.file).hexdigest() for span in images]


def placed(images: ImageSpans) -> tuple[tuple[int, int, str], ...]:
    """The images as plain values: start, stop, digest."""
    return tuple((span.start, span.stop, span.image.digest) for span in images)


def respelt(found: Any) -> Any:
    """The same images in another spelling of base64, under another type."""
    if not isinstance(found, list):
        return found
    return [_respelt(part) if part["type"] == IMAGE_PART else part for part in found]


def meaning(found: Any) -> Any:
    """Content in which images are their bytes, however they are spelt."""
    if not isinstance(found, list):
        return found
    return [ImageFile.of_part(part).data if part["type"] == IMAGE_PART else part for part in found]


def _respelt(part: Json) -> Json:
    text = base64.encodebytes(ImageFile.of_part(part).data).decode()
    return {"type": IMAGE_PART, IMAGE_PART: {"url": f"data:image/x;base64,{text}", "detail": "low"}}
