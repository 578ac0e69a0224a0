"""Real image files for tests, written without a library for images."""

from __future__ import annotations

import struct
import zlib


def make_png(width: int = 8, height: int = 8, seed: int = 0) -> bytes:
    """A PNG of 8-bit RGB whose pixels are a function of `seed` (PNG specification, 3rd edition, section 5)."""
    row = bytes((seed * 29 + 7 * place) % 256 for place in range(3 * width))
    lines = b"".join(b"\0" + bytes((each + 13 * y) % 256 for each in row) for y in range(height))
    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    chunks = [(b"IHDR", header), (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, data) for kind, data in chunks)


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
