"""Finding the stored token sequence that begins like a given one, in time that does not grow with what is stored."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

import numpy as np
import numpy.typing as npt

TokenArray = npt.NDArray[np.int32]

BLOCK = 16


class HasTokens(Protocol):
    @property
    def tokens(self) -> TokenArray: ...


Stored = TypeVar("Stored", bound=HasTokens)


def common_length(a: TokenArray, b: TokenArray) -> int:
    """How many leading tokens two sequences have in common."""
    size = min(len(a), len(b))
    differing = np.flatnonzero(a[:size] != b[:size])
    return int(differing[0]) if len(differing) else size


class PrefixIndex(Generic[Stored]):
    """Sequences by all of their tokens, and by their first 16, 32, ... tokens; the one added last wins.

    What `find` returns is compared token by token, so that a hash collision costs time and nothing else. Among
    sequences that part within the same 16 tokens it may find a shorter match than the longest.
    """

    def __init__(self) -> None:
        self._whole: dict[bytes, Stored] = {}
        self._begins: dict[int, Stored] = {}

    def add(self, stored: Stored) -> None:
        self._whole[stored.tokens.tobytes()] = stored
        for key in _keys(stored.tokens):
            self._begins[key] = stored

    def remove(self, stored: Stored) -> None:
        """Forget it, if it is there."""
        whole = stored.tokens.tobytes()
        if self._whole.get(whole) is stored:
            del self._whole[whole]
        for key in _keys(stored.tokens):
            if self._begins.get(key) is stored:
                del self._begins[key]

    def clear(self) -> None:
        self._whole.clear()
        self._begins.clear()

    def find(self, tokens: TokenArray) -> tuple[Stored | None, int]:
        """A sequence with many leading tokens in common with `tokens`, and how many."""
        whole = self._whole.get(tokens.tobytes())
        if whole is not None:
            return whole, len(tokens)
        for key in reversed(_keys(tokens)):
            stored = self._begins.get(key)
            if stored is not None:
                common = common_length(stored.tokens, tokens)
                if common:
                    return stored, common
        return None, 0


def _keys(tokens: TokenArray) -> list[int]:
    """A hash of the first 16 tokens, of the first 32, ..."""
    keys, key = [], 0
    for start in range(0, len(tokens) - BLOCK + 1, BLOCK):
        key = hash((key, tokens[start : start + BLOCK].tobytes()))
        keys.append(key)
    return keys
