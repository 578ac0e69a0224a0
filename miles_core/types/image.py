"""Images as a model takes them, and where they stand among a row's tokens."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from miles_core.errors import ValidationError


@dataclass(frozen=True, slots=True, eq=False)
class ImageInput:
    """One image: the file that was sent, and the pixel inputs that the family's processor made of it.

    digest         64 hexadecimal digits that name the image by its content (`ImageInput.of` computes them). Equal
                   digests mean equal files and equal pixel inputs
    media_type     of the file, such as `image/png`
    width, height  of the image in the file, in pixels
    file           the bytes that were sent, for engines that process images themselves and for people
    arrays         what the processor made, by the names under which the model takes them, such as `pixel_values`
                   float32 [patches, values] and `image_grid_thw` int64 [1, 3] of the Qwen families

    `file` and `arrays` are empty where only the facts were read (see `pixels` of `read_groups`).
    """

    digest: str
    media_type: str
    width: int
    height: int
    file: bytes
    arrays: Mapping[str, npt.NDArray[Any]]

    @classmethod
    def of(
        cls, file: bytes, media_type: str, width: int, height: int, arrays: Mapping[str, npt.NDArray[Any]]
    ) -> ImageInput:
        """With the digest that the content has. Raises ValidationError when there is nothing to name."""
        if not file or not arrays:
            raise ValidationError("an ImageInput needs the file that was sent, and one array or more")
        return cls(content_digest(file, media_type, arrays), media_type, width, height, file, dict(arrays))

    @property
    def intact(self) -> bool:
        """Whether the digest is that of the content."""
        return bool(self.file) and self.digest == content_digest(self.file, self.media_type, self.arrays)


@dataclass(frozen=True, slots=True, eq=False)
class ImageSpan:
    """The tokens [start, stop) of a row stand for this image: placeholders, which nobody sampled."""

    start: int
    stop: int
    image: ImageInput

    def moved(self, by: int) -> ImageSpan:
        """The same `by` tokens later."""
        return replace(self, start=self.start + by, stop=self.stop + by) if by else self


ImageSpans = tuple[ImageSpan, ...]


def content_digest(file: bytes, media_type: str, arrays: Mapping[str, npt.NDArray[Any]]) -> str:
    """SHA-256 over the file and, in order of their names, each array's name, dtype, shape and bytes (little-endian,
    row by row); each part is preceded by its length."""
    found = hashlib.sha256()

    def add(part: bytes | memoryview) -> None:
        found.update(len(part).to_bytes(8, "little"))
        found.update(part)

    add(media_type.encode())
    add(file)
    for name in sorted(arrays):
        array = np.ascontiguousarray(arrays[name])
        array = array.astype(array.dtype.newbyteorder("<"), copy=False)
        add(f"{name}\0{array.dtype.str}\0{array.shape}".encode())
        add(array.tobytes())
    return found.hexdigest()


def check_image_spans(spans: Iterable[ImageSpan], length: int, whose: str) -> None:
    """Raises ValidationError unless the spans are ordered, disjoint, not empty, and inside a row of `length` tokens."""
    end = 0
    for index, span in enumerate(spans):
        if not end <= span.start < span.stop <= length:
            raise ValidationError(
                f"{whose}[{index}] is [{span.start}, {span.stop}), expected it to start at or after {end}, "
                f"to be non-empty and to end at or before {length}"
            )
        end = span.stop
