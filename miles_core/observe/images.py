"""The images of a trajectories folder: each file and each image's pixel inputs once, under the name of its content.

    images/<sha256 of the file>.png       the file as it was sent (or .jpeg, .webp, .gif)
    images/<digest of the image>.npz      the pixel inputs, as numpy reads them (`ImageInput.arrays`), and `miles`: JSON
                                          text of the other facts, its `file` among them

What is there is never written again, so an image that thousands of trajectories have costs its size once.
docs/formats.md has the format.
"""

from __future__ import annotations

import hashlib
import json
import zipfile
import zlib
from collections.abc import Iterable, Mapping
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from miles_core.contracts.images import IMAGE_PART, has_images
from miles_core.errors import RequestError, RunError
from miles_core.observe.atomic import replacing
from miles_core.types.image import ImageInput, ImageSpan
from miles_core.types.image_file import ImageFile
from miles_core.types.task import Message, Task

FOLDER = "images"
FACTS = "miles"
DEMONSTRATION = "demonstration"

Row = dict[str, Any]


class ImageFolder:
    """The images beside the Parquet files of `trajectories`. Touches nothing until something is kept or read."""

    def __init__(self, trajectories: Path) -> None:
        self.path = trajectories / FOLDER
        self._read = lru_cache(maxsize=64)(self._load)

    def keep(self, images: Iterable[ImageInput]) -> None:
        """Raises RunError when the disk is full, or an image has no content."""
        for image in {image.digest: image for image in images}.values():
            if not (image.file and image.arrays):
                raise RunError(f"image {image.digest} has no content to keep", mend="read its groups with their pixels")
            name = file_name(image.file, image.media_type)
            self.keep_file(image.file, name)
            self._write(f"{image.digest}.npz", partial(_save, image, name))

    def keep_file(self, data: bytes, name: str) -> None:
        self._write(name, lambda draft: draft.write_bytes(data))

    def read(self, digest: str) -> ImageInput:
        """Raises RequestError naming the file that is missing or damaged."""
        return self._read(digest)

    def file(self, name: str) -> bytes:
        """The bytes of a file. Raises RequestError when it is missing."""
        try:
            return (self.path / name).read_bytes()
        except OSError as error:
            raise _missing(self.path / name, error) from error

    def fault(self, digest: str) -> str:
        """What is wrong with an image; "": it is there, and its content has the digest."""
        try:
            image = self._load(digest)
        except RequestError as error:
            return "; ".join(f"{each.what} ({each.where})" for each in error.problems)
        return "" if image.intact else "its file and its pixel inputs do not have the digest that names them"

    def _load(self, digest: str) -> ImageInput:
        place = self.path / f"{digest}.npz"
        try:
            with np.load(place, allow_pickle=False) as found:
                arrays = {name: found[name] for name in found.files}
            facts = json.loads(str(arrays.pop(FACTS)))
            file, media_type, width, height = (facts[key] for key in ("file", "media_type", "width", "height"))
        except (OSError, ValueError, KeyError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as error:
            raise _missing(place, error) from error
        return ImageInput(digest, media_type, width, height, self.file(file), arrays)

    def _write(self, name: str, write: Any) -> None:
        path = self.path / name
        if path.exists():
            return
        self.path.mkdir(exist_ok=True)
        with replacing(path) as draft:
            write(draft)


def row_of(span: ImageSpan) -> Row:
    """What a sequence's row says of an image."""
    image = span.image
    place = {"start": span.start, "stop": span.stop, "digest": image.digest}
    facts = {"media_type": image.media_type, "width": image.width, "height": image.height}
    return {**place, **facts}


def facts_of(row: Row) -> ImageInput:
    """The image of a row without its content."""
    return ImageInput(row["digest"], row["media_type"], row["width"], row["height"], b"", {})


def file_name(data: bytes, media_type: str) -> str:
    return f"{hashlib.sha256(data).hexdigest()}.{media_type.rpartition('/')[2]}"


def task_data(task: Task, files: dict[str, bytes]) -> dict[str, Any]:
    """The task as JSON data with `images/NAME` in place of each image's bytes, which are added to `files` by name."""

    def kept(part: Mapping[str, Any]) -> Mapping[str, Any]:
        file = ImageFile.of_part(part)
        files[name := file_name(file.data, file.media_type)] = file.data
        return {"type": IMAGE_PART, IMAGE_PART: {"url": f"{FOLDER}/{name}"}}

    return _with_parts(task.to_data(), kept)


def whole_task(data: dict[str, Any], folder: ImageFolder | None) -> Task:
    """The inverse; without a folder the names stay."""
    if folder is None:
        return Task.from_data(data)

    def restored(part: Mapping[str, Any]) -> Mapping[str, Any]:
        name = part[IMAGE_PART]["url"].removeprefix(f"{FOLDER}/")
        return ImageFile.of(folder.file(name)).part

    return Task.from_data(_with_parts(data, restored))


def _with_parts(data: dict[str, Any], change: Any) -> dict[str, Any]:
    """Task data whose images, in its prompt and in its demonstration, were changed."""
    prompt, metadata = data["prompt"], data["metadata"]
    shown = metadata.get(DEMONSTRATION)
    if not isinstance(prompt, str) and has_images(prompt):
        data = {**data, "prompt": [_changed(message, change) for message in prompt]}
    if isinstance(shown, list | tuple) and all(isinstance(each, Mapping) for each in shown) and has_images(shown):
        data = {**data, "metadata": {**metadata, DEMONSTRATION: [_changed(each, change) for each in shown]}}
    return data


def _changed(message: Message, change: Any) -> Message:
    content = message.get("content")
    if not isinstance(content, list | tuple):
        return message
    return {**message, "content": [change(part) if part.get("type") == IMAGE_PART else part for part in content]}


def _save(image: ImageInput, name: str, draft: Path) -> None:
    facts = {"file": name, "media_type": image.media_type, "width": image.width, "height": image.height}
    columns: dict[str, Any] = {**image.arrays, FACTS: np.array(json.dumps(facts))}
    with draft.open("wb") as file:
        np.savez_compressed(file, **columns)


def _missing(path: Path, error: Exception) -> RequestError:
    what = (error.strerror or str(error)) if isinstance(error, OSError) else f"damaged: {error}"
    return RequestError(
        f"an image of the run cannot be read: {what}",
        where=str(path),
        mend="take the file from another copy of the run: what was trained on it cannot be told without it",
    )
