"""An image file, known by its first bytes: its type and its size, without decoding a pixel.

PNG, JPEG, WebP and GIF: what both OpenAI's and Anthropic's clients send. What a name or a header of HTTP says of the
type is not believed.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

_DATA_URL = re.compile(r"data:(?P<type>[^,;]*)(?P<more>(?:;[^,;]*)*),", re.IGNORECASE)
_SHOWN = 40


@dataclass(frozen=True, slots=True)
class ImageFile:
    """The bytes of an image file. `width` and `height` in pixels, as its header says."""

    data: bytes
    media_type: str
    width: int
    height: int

    @classmethod
    def of(cls, data: bytes) -> ImageFile:
        """Raises ValueError for what is no PNG, JPEG, WebP or GIF, or ends inside its header."""
        for begins, media_type, size in _KINDS:
            if data.startswith(begins) and (media_type != "image/webp" or data[8:12] == b"WEBP"):
                try:
                    width, height = size(data)
                except (IndexError, ValueError):
                    raise ValueError(f"the {media_type} file is cut or damaged: its header has no size") from None
                if not (width and height):
                    raise ValueError(f"the {media_type} file says that it is {width}x{height}")
                return cls(data, media_type, width, height)
        raise ValueError(f"the {len(data)} bytes are no PNG, JPEG, WebP or GIF (they begin with {data[:8]!r})")

    @classmethod
    def of_url(cls, url: Any) -> ImageFile:
        """The file in a `data:` URL. Raises ValueError for any other URL: nothing is fetched."""
        if not isinstance(url, str):
            raise ValueError(f"the image's URL is {type(url).__name__}, expected text")
        found = _DATA_URL.match(url)
        if found is None:
            scheme = url.partition(":")[0]
            if scheme.lower() in ("http", "https"):
                raise ValueError(f"the image is at {url[:_SHOWN]!r}, and nothing is fetched from the net: {_INSTEAD}")
            raise ValueError(f"the image's URL begins with {url[:12]!r}: {_INSTEAD}")
        if "base64" not in found["more"].lower().split(";"):
            raise ValueError(f"the image's data: URL is not in base64: {_INSTEAD}")
        text = url[found.end() :]
        try:
            data = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            data = _loosely(text)
        return cls.of(data)

    @classmethod
    def of_part(cls, part: Mapping[str, Any]) -> ImageFile:
        """The file in a part of a message, `{type: image_url, image_url: {url}}`. Raises ValueError as `of_url`."""
        given = part.get("image_url")
        return cls.of_url(given.get("url") if isinstance(given, Mapping) else given)

    @property
    def part(self) -> dict[str, Any]:
        """The part of a message that has it: equal for equal bytes."""
        return {"type": "image_url", "image_url": {"url": self.url}}

    @property
    def url(self) -> str:
        return f"data:{self.media_type};base64,{base64.b64encode(self.data).decode('ascii')}"


_INSTEAD = "send it as data:image/png;base64,…"


def _loosely(text: str) -> bytes:
    """Base64 with line ends, without padding, or in the alphabet of URLs, as some clients write it."""
    plain = re.sub(r"\s|=+\Z", "", text).replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise ValueError(f"the image's base64 cannot be read: {error}") from None


def _number(data: bytes, start: int, stop: int, order: str = "big") -> int:
    if len(data) < stop:
        raise IndexError(stop)
    return int.from_bytes(data[start:stop], order)  # type: ignore[arg-type]


def _png(data: bytes) -> tuple[int, int]:
    if data[12:16] != b"IHDR":
        raise ValueError
    return _number(data, 16, 20), _number(data, 20, 24)


def _gif(data: bytes) -> tuple[int, int]:
    return _number(data, 6, 8, "little"), _number(data, 8, 10, "little")


def _jpeg(data: bytes) -> tuple[int, int]:
    """From the frame header, the first marker from C0 to CF that is none of C4, C8 and CC (ITU-T T.81, B.2.2)."""
    at = 2
    while True:
        while data[at] == 0xFF and data[at + 1] == 0xFF:
            at += 1
        if data[at] != 0xFF:
            raise ValueError
        marker = data[at + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _number(data, at + 7, at + 9), _number(data, at + 5, at + 7)
        at += 2 + _number(data, at + 2, at + 4)


def _webp(data: bytes) -> tuple[int, int]:
    """RFC 9649, sections 2.5 to 2.7."""
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + _number(data, 24, 27, "little"), 1 + _number(data, 27, 30, "little")
    if kind == b"VP8L":
        bits = _number(data, 21, 25, "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    if kind == b"VP8 ":
        return _number(data, 26, 28, "little") & 0x3FFF, _number(data, 28, 30, "little") & 0x3FFF
    raise ValueError


_KINDS: tuple[tuple[bytes, str, Callable[[bytes], tuple[int, int]]], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png", _png),
    (b"\xff\xd8\xff", "image/jpeg", _jpeg),
    (b"RIFF", "image/webp", _webp),
    (b"GIF87a", "image/gif", _gif),
    (b"GIF89a", "image/gif", _gif),
)
"""First bytes, type, and who reads the size."""
