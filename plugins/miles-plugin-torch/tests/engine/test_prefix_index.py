"""Lookups of stored beginnings, against comparing with everything that is stored."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from miles_plugin_torch.engine.prefix_index import BLOCK, PrefixIndex, common_length


@dataclass(eq=False)
class Stored:
    tokens: np.ndarray


SEQUENCES = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 60), st.integers(0, 2), st.integers(1, 40)), min_size=1, max_size=12
)


def sequence(first: int, shared: int, second: int, rest: int) -> np.ndarray:
    """`shared` tokens of one of three families, then `rest` tokens of another."""
    return np.concatenate([np.arange(shared) + 1000 * first, np.arange(rest) + 1000 * second + 500]).astype(np.int32)


@settings(deadline=None, max_examples=200)
@given(stored=SEQUENCES, removed=st.sets(st.integers(0, 11)), asked=SEQUENCES)
def test_found_beginnings_are_real_and_nearly_the_longest(
    stored: list[tuple[int, int, int, int]], removed: set[int], asked: list[tuple[int, int, int, int]]
) -> None:
    index: PrefixIndex[Stored] = PrefixIndex()
    kept = [Stored(sequence(*parts)) for parts in stored]
    for item in kept:
        index.add(item)
    for number in sorted(removed):
        if number < len(kept):
            index.remove(kept[number])
    gone = {number for number in removed if number < len(kept)}
    left = [item for number, item in enumerate(kept) if number not in gone]
    for tokens in [sequence(*parts) for parts in asked] + [item.tokens for item in left]:
        found, common = index.find(tokens)
        assert (found is None) == (common == 0)
        if found is not None:
            assert any(found is item for item in left)
            assert common == common_length(found.tokens, tokens)
        if not gone:
            longest = max(common_length(item.tokens, tokens) for item in left)
            assert common > longest - BLOCK
            if any(np.array_equal(item.tokens, tokens) for item in left):
                assert common == len(tokens)
