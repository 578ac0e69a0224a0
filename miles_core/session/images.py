"""Images in what a client sends: their normal form, bounds that hold before a pixel is decoded, and how they are told.

The normal form of an image is a part `{"type": "image_url", "image_url": {"url": "data:…"}}` with the type that the
file itself says and its bytes in plain base64: parts are equal exactly when the bytes are, so a history matches by
content.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass
from typing import Any

from miles_core.contracts.images import IMAGE_PART
from miles_core.session.faults import bad_request
from miles_core.types.image_file import ImageFile
from miles_core.types.task import Message

NOT_HERE = "images_not_supported"


@dataclass(frozen=True, slots=True)
class ImageRules:
    """Which images a conversation may have.

    refused  why none may, in words (an engine takes none); "": they may
    count    images in one conversation
    bytes    of one image's file
    pixels   of one image, as its header says: what a small file may unfold to
    """

    refused: str = ""
    count: int = 64
    bytes: int = 16 * 2**20
    pixels: int = 2**25

    def check(self, messages: Several[Message], first: int, before: int) -> None:
        """Look at messages that a request adds. `first` is the number of the first of them in its conversation,
        `before` how many images stand before. Raises SessionFault (400) that names the message."""
        for place, message in enumerate(messages, first):
            for part in parts_of(message):
                before += 1
                self._check(part, f"message {place} ({message['role']})", before)

    def _check(self, part: Mapping[str, Any], where: str, number: int) -> None:
        if self.refused:
            mend = "send text, or serve a model, an engine and a trainer that take images"
            raise bad_request(f"{where} has an image, and {self.refused}", code=NOT_HERE, mend=mend)
        if number > self.count:
            raise bad_request(
                f"{where} brings image {number} of the conversation, the limit is {self.count}", code="too_many_images"
            )
        file = ImageFile.of_part(part)
        if len(file.data) > self.bytes:
            what = f"the image of {where} has {len(file.data)} bytes, the limit is {self.bytes}"
            raise bad_request(what, code="image_too_large", mend="send a smaller one")
        if file.width * file.height > self.pixels:
            what = f"the image of {where} is {file.width}x{file.height}, the limit is {self.pixels} pixels"
            raise bad_request(what, code="image_too_large", mend="send a smaller one")


def normal_part(part: Mapping[str, Any]) -> Mapping[str, Any]:
    """An image's part in normal form; any other as it is. Raises ValueError for an image that is none."""
    return ImageFile.of_part(part).part if part["type"] == IMAGE_PART else part


def parts_of(message: Message) -> Iterator[Mapping[str, Any]]:
    """The images of a message in normal form."""
    content = message["content"]
    if not isinstance(content, str):
        yield from (part for part in content if part["type"] == IMAGE_PART)


def told(message: Message) -> Message:
    """The message for people and logs: each image as its facts."""
    content = message.get("content")
    if not isinstance(content, list | tuple):
        return message
    return {**message, "content": [_facts(part) if part.get("type") == IMAGE_PART else part for part in content]}


def told_content(content: Any) -> Any:
    """Content that has an image as one text; any other as it is."""
    if not isinstance(content, list | tuple) or not any(part.get("type") == IMAGE_PART for part in content):
        return content
    return " ".join(_word(part) if part.get("type") == IMAGE_PART else repr(part.get("text", part)) for part in content)


def image_difference(ours: Any, theirs: Any) -> str:
    """In words, the first part in which two contents differ, where it is an image in one of them; "" else."""
    if isinstance(ours, list) and isinstance(theirs, list):
        for number, (a, b) in enumerate(zip(ours, theirs, strict=False)):
            if a != b and IMAGE_PART in (a.get("type"), b.get("type")):
                first, second = (told_content([part]) for part in (a, b))
                return f"part {number} differs: the session has {first:.80}, the request {second:.80}"
    return ""


def _facts(part: Mapping[str, Any]) -> dict[str, Any]:
    file = ImageFile.of_part(part)
    digest = hashlib.sha256(file.data).hexdigest()
    facts = {"media_type": file.media_type, "width": file.width, "height": file.height, "bytes": len(file.data)}
    return {"type": "image", **facts, "sha256": digest}


def _word(part: Mapping[str, Any]) -> str:
    facts = _facts(part)
    return f"[{facts['media_type']} {facts['width']}x{facts['height']} sha256:{facts['sha256'][:12]}]"
