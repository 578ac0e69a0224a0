"""The end of what a program wrote, short enough for a message."""

from __future__ import annotations

LINES = 10
CHARACTERS = 2000


def last_words(text: str, size: int | None = None, *, lines: int = LINES) -> str:
    """Its last lines, and no more than the last `CHARACTERS` characters of them, with a word about what a cut line
    lacks. `text` is the end of `size` bytes; None: all of it."""
    last = "\n".join(text.splitlines()[-lines:])
    if len(last) <= CHARACTERS:
        return last
    kept = last[-CHARACTERS:]
    bytes_in_all = len(text.encode()) if size is None else size
    return f"[{bytes_in_all - len(kept.encode())} bytes before this are left out] …{kept}"
