"""A tokenizer as the library `renderers` wants it, over tokenizer.json.

The library hands whole texts over, its own special tokens among them, so special tokens are parsed. A user's text that
spells one would then become that token. `literal` prevents it: it puts a character that no text may have inside every
special token's spelling, and `encode` takes it out again and tokenizes what stood there as plain text.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from miles_core import RequestError

_MARK = "\ufdd0"
"""A noncharacter of Unicode: reserved for uses like this one, never text."""


class FamilyTokenizer:
    """Text to ids and back. Thread-safe. `special` maps spelling to id of tokens that text must not become by itself;
    other added tokens (`<think>` of some families) are parsed in anybody's text, as their templates do."""

    unk_token_id: int | None = None
    eos_token_id: int | None = None

    def __init__(self, file: Path) -> None:
        """Raises RequestError when the file is missing or unreadable."""
        self._file = file
        self._parsing = _read(file)
        self.name_or_path = ""
        added = self._parsing.get_added_tokens_decoder()
        self.special = {token.content: id for id, token in added.items() if token.special and token.content}
        self.size = self._parsing.get_vocab_size(with_added_tokens=True)
        spellings = sorted(self.special, key=len, reverse=True)
        self._spelt = re.compile("|".join(map(re.escape, spellings)) or r"(?!)")

    def literal(self, text: str) -> str:
        """The same text for `encode`, with no special token in it. Raises ValueError for U+FDD0."""
        if _MARK in text:
            raise ValueError("U+FDD0 is no character of a text")
        return self._spelt.sub(lambda found: found[0][0] + _MARK + found[0][1:], text)

    def plain(self, text: str) -> list[int]:
        """Ids of a text in which nothing is a special token."""
        tokenizer = self._plain if self._spelt.search(text) else self._parsing
        return list(tokenizer.encode(text, add_special_tokens=False).ids)

    @cached_property
    def _plain(self) -> Tokenizer:
        """The tokenizer again, for the rare text that spells a special token."""
        plain = _read(self._file)
        plain.encode_special_tokens = True
        return plain

    # What the library calls

    def encode(self, text: str, *_: Any, **__: Any) -> list[int]:
        """Ids, special tokens parsed except where `literal` marked them; none are added."""
        if _MARK not in text:
            return list(self._parsing.encode(text, add_special_tokens=False).ids)
        ids: list[int] = []
        place = 0
        for found in self._spelt.finditer(text):
            ids += [*self.plain(text[place : found.start()].replace(_MARK, "")), self.special[found[0]]]
            place = found.end()
        return ids + self.plain(text[place:].replace(_MARK, ""))

    def decode(self, ids: int | Sequence[int], skip_special_tokens: bool = False, **_: Any) -> str:
        """Text of the ids; an id without a token says nothing."""
        given = [ids] if isinstance(ids, int) else list(ids)
        return str(self._parsing.decode(given, skip_special_tokens=skip_special_tokens))

    def convert_tokens_to_ids(self, tokens: str | Sequence[str]) -> Any:
        """The id of a token by its spelling, None where there is none."""
        if isinstance(tokens, str):
            return self._parsing.token_to_id(tokens)
        return [self._parsing.token_to_id(token) for token in tokens]


def tokenizer_of(folder: Path) -> FamilyTokenizer:
    """The tokenizer of a directory; read once, since it takes a second and does not change. Raises RequestError."""
    file = folder / "tokenizer.json"
    facts = file.stat() if file.is_file() else None
    return _tokenizer(file, facts and (facts.st_size, facts.st_mtime_ns))


@lru_cache(maxsize=4)
def _tokenizer(file: Path, _edition: tuple[int, int] | None) -> FamilyTokenizer:
    return FamilyTokenizer(file)


def _read(file: Path) -> Tokenizer:
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception as error:  # the library raises bare Exception
        raise RequestError(f"the tokenizer cannot be read: {error}", where=str(file)) from error
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer
