"""Images in a data file: each is read where the file says it is, when the data is, so that none is missing later.

A part of a message is an image in one of these forms; a path is relative to the data file's folder:

    {"type": "image_url", "image_url": {"url": "pictures/cat.png"}}     or a data: URL; or the text alone
    {"type": "image", "image": "pictures/cat.png"}                      or {"bytes": …} or {"path": …}, as datasets have
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from miles_core.types.image_file import ImageFile
from miles_core.types.task import Message


def with_images(messages: Sequence[Message], folder: Path) -> list[Message]:
    """The messages with every image as a data: URL. Raises ValueError naming an image that cannot be read."""
    return [_message(message, folder) for message in messages]


def _message(message: Message, folder: Path) -> Message:
    content = message["content"]
    if not isinstance(content, list):
        return message
    return {**message, "content": [_part(part, folder) for part in content]}


def _part(part: Any, folder: Path) -> Any:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if kind == "image_url":
        given = part.get("image_url")
        return _file(given.get("url") if isinstance(given, Mapping) else given, folder).part
    if kind == "image":
        return _file(part.get("image"), folder).part
    if kind == "text":
        return {"type": "text", "text": part.get("text")}  # Parquet fills what other parts have with null
    return part


def _file(given: Any, folder: Path) -> ImageFile:
    if isinstance(given, Mapping):
        given = given.get("bytes") or given.get("path")
    if isinstance(given, bytes):
        return ImageFile.of(given)
    if isinstance(given, str) and ":" not in given.partition("/")[0]:
        path = folder / given
        try:
            data = path.read_bytes()
        except OSError as error:
            raise ValueError(f"the image {str(path)!r} cannot be read: {error.strerror or error}") from error
        try:
            return ImageFile.of(data)
        except ValueError as error:
            raise ValueError(f"the image {str(path)!r}: {error}") from error
    return ImageFile.of_url(given)
