"""Micro-batches: every row once, the budget kept, shared prefixes once."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from miles_plugin_torch.trainer.packing import PackRow, common_prefix, pack


def row(index, tokens, *, trajectory=None, group="g", first_target=1):
    tokens = np.asarray(tokens, dtype=np.int32)
    at = np.arange(first_target, len(tokens))
    return PackRow(index, tokens, at, np.ones(len(at), np.float32), trajectory or f"t{index}", group)


few_tokens = st.lists(st.integers(0, 1), min_size=2, max_size=8)


@settings(max_examples=60, deadline=None)
@given(st.lists(few_tokens, min_size=1, max_size=8), st.integers(1, 40))
def test_each_target_is_read_from_the_token_before_it_in_its_own_row(rows, micro_tokens):
    """The packed tokens at the places that a row's targets are read from are the row's own, at their positions."""
    packed = [row(i, tokens, group=i % 2) for i, tokens in enumerate(rows)]
    batches = pack(packed, micro_tokens)
    assert sorted(r.index for b in batches for r in b.rows) == list(range(len(rows)))
    for batch in batches:
        assert [r.index for r in batch.rows] == sorted(r.index for r in batch.rows)
        assert len(batch.tokens) <= micro_tokens or len({r.trajectory for r in batch.rows}) == 1
        assert len(batch.tokens) + batch.saved == sum(r.input_length for r in batch.rows)
        for place, member in enumerate(batch.rows):
            mine = batch.row == place
            assert np.array_equal(batch.tokens[batch.read_at[mine]], member.tokens[member.targets_at - 1])
            assert np.array_equal(batch.positions[batch.read_at[mine]], member.targets_at - 1)
            assert np.array_equal(batch.targets[mine], member.tokens[member.targets_at])


@settings(max_examples=60, deadline=None)
@given(st.lists(few_tokens, min_size=1, max_size=8))
def test_no_other_cut_of_the_sorted_rows_leaves_fewer_tokens(rows):
    """Against every cut of the sorted rows into runs that share their longest common prefix."""
    packed = [row(i, tokens) for i, tokens in enumerate(rows)]
    (batch,) = pack(packed, 10_000)
    ordered = sorted(packed, key=lambda r: list(r.tokens[: r.input_length]))
    cuts = (c for count in range(len(rows)) for c in combinations(range(1, len(rows)), count))
    runs = ([ordered[a:b] for a, b in pairwise([0, *cut, len(rows)])] for cut in cuts)
    assert len(batch.tokens) == min(sum(map(block_tokens, parts)) for parts in runs)


def block_tokens(rows):
    shared = min((common_prefix(a, b) for a, b in combinations(rows, 2)), default=0)
    return sum(r.input_length for r in rows) - (len(rows) - 1) * shared


def test_the_last_sampled_token_and_what_follows_are_not_computed():
    tokens = np.arange(10, dtype=np.int32)
    (batch,) = pack([PackRow(0, tokens, np.array([4, 6]), np.ones(2, np.float32), "t", "g")], 100)
    assert list(batch.tokens) == [0, 1, 2, 3, 4, 5]


def test_a_group_shares_its_prompt_once():
    prompt = [7] * 45
    rows = [row(i, [*prompt, *np.random.default_rng(i).integers(10, 99, 32)], first_target=45) for i in range(8)]
    (batch,) = pack(rows, 1024)
    assert len(batch.tokens) == 45 + 8 * 31
    assert batch.saved == 7 * 45


def test_groups_are_kept_together_when_they_fit():
    rows = [row(i, [i // 4, *range(2, 12)], group=i // 4) for i in range(12)]
    batches = pack(rows, 50)
    assert all(len({r.group for r in b.rows}) * 4 == len(b.rows) for b in batches)
