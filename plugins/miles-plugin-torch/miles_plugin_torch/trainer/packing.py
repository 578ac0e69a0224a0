"""Rows to micro-batches: no padding, and the common prefix of a group's rows only once.

A row of n tokens needs its tokens up to the one before the last sampled token: what follows predicts nothing that is
learned. Rows of one group usually start with the same prompt. In a *block* their longest common prefix of length p
stands once, then what is left of each row, its suffix:

    block = prefix [p] | suffix of row 1 | suffix of row 2 | ...

Token j of a row is at `prefix.start + j` for j < p and in its suffix from there on; its position (for the rotary
embedding) is j in either case. `packed_attention` lets a suffix attend to its prefix and to itself, so every hidden
state is the one that the row alone would have.

Which rows share is decided for the rows of a group that lie in the same micro-batch: sorted, rows with a long common
prefix are neighbours, and a dynamic programme makes that cut of the sorted list into blocks which leaves the fewest
tokens. A group whose rows all start with one prompt is one block.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True, eq=False)
class PackRow:
    """One row to pack.

    index         the caller's number of the row
    tokens        int32 [n]; of a model that sees keys, with which images differ
    targets_at    int64 [m], m >= 1, ascending, from 1: which tokens' log-probs are wanted
    temperature   float32 [m] of those tokens
    trajectory    rows of one trajectory are never split over micro-batches: a loss may look at it as a whole
    group         rows of one group may share a prefix
    positions     int64 [3, n] of a model that sees; None: a token's position is its number
    """

    index: int
    tokens: npt.NDArray[np.int32]
    targets_at: IntArray
    temperature: FloatArray
    trajectory: Hashable
    group: Hashable
    positions: IntArray | None = None

    @property
    def input_length(self) -> int:
        """How many tokens go through the model: those before the last token whose log-prob is wanted."""
        return int(self.targets_at[-1])


@dataclass(frozen=True, slots=True)
class Run:
    """Tokens [start, start + length) of a micro-batch."""

    start: int
    length: int


@dataclass(frozen=True, slots=True)
class Block:
    """A prefix (length 0: none) and the suffixes that attend to it, in order. A suffix may be empty."""

    prefix: Run
    suffixes: tuple[Run, ...]


@dataclass(frozen=True, slots=True, eq=False)
class MicroBatch:
    """What goes through the model at once: T tokens, M wanted log-probs of R rows.

    tokens                      int64 [T]
    positions                   int64 [T], or [3, T] of a model that sees
    blocks                      cover [0, T), in order
    read_at                     int64 [M]: the packed token whose hidden state predicts the target
    targets                     int64 [M]
    temperature                 float32 [M]
    rows                        the rows, by ascending index; their targets stand in this order
    row, trajectory             int64 [M]: which of `rows`, which trajectory (by first appearance)
    saved                       tokens that are not computed because a prefix is shared
    """

    tokens: IntArray
    positions: IntArray
    blocks: tuple[Block, ...]
    read_at: IntArray
    targets: IntArray
    temperature: FloatArray
    rows: tuple[PackRow, ...]
    row: IntArray
    trajectory: IntArray
    saved: int


def pack(rows: Sequence[PackRow], micro_tokens: int, share_prefix: bool = True) -> list[MicroBatch]:
    """Micro-batches of at most `micro_tokens` tokens (a trajectory that is longer goes alone), each row in one.

    Deterministic. Groups stay together while the budget allows; micro-batches are filled first-fit in row order.
    """
    pieces: list[_Piece] = []
    for group in _by(rows, lambda row: row.group):
        pieces.extend(_pieces_of_group(group, micro_tokens, share_prefix))
    filled: list[tuple[list[list[PackRow]], int]] = []
    for piece in pieces:
        for slot, (blocks, tokens) in enumerate(filled):
            if tokens + piece.tokens <= micro_tokens:
                blocks.extend(piece.blocks)
                filled[slot] = (blocks, tokens + piece.tokens)
                break
        else:
            filled.append((list(piece.blocks), piece.tokens))
    return [_lay_out(blocks) for blocks, _ in filled]


@dataclass(frozen=True, slots=True)
class _Piece:
    """Rows of one group that go into one micro-batch, cut into blocks, and the tokens they take."""

    blocks: list[list[PackRow]]
    tokens: int


def _by(rows: Iterable[PackRow], key: Callable[[PackRow], Hashable]) -> list[list[PackRow]]:
    found: dict[Hashable, list[PackRow]] = {}
    for row in rows:
        found.setdefault(key(row), []).append(row)
    return list(found.values())


def _pieces_of_group(rows: list[PackRow], micro_tokens: int, share_prefix: bool) -> list[_Piece]:
    """The whole group when it fits, else its trajectories, as many at a time as fit."""
    whole = _cut(rows, share_prefix)
    if whole.tokens <= micro_tokens:
        return [whole]
    pieces: list[_Piece] = []
    members: list[PackRow] = []
    piece: _Piece | None = None
    for trajectory in _by(rows, lambda row: row.trajectory):
        grown = _cut([*members, *trajectory], share_prefix)
        if piece is not None and grown.tokens > micro_tokens:
            pieces.append(piece)
            members, grown = [], _cut(trajectory, share_prefix)
        members.extend(trajectory)
        piece = grown
    return [*pieces, piece] if piece is not None else pieces


def _cut(rows: Sequence[PackRow], share_prefix: bool) -> _Piece:
    """The rows as blocks that leave the fewest tokens: of the first i sorted rows, `saved[i]` tokens are saved at best
    when the last block starts at row `start[i]`; a block of c rows with common prefix p saves (c - 1) p."""
    total = sum(row.input_length for row in rows)
    if not share_prefix or len(rows) == 1:
        return _Piece([[row] for row in rows], total)
    ordered = sorted(rows, key=lambda row: (row.tokens[: row.input_length].astype(">i4").tobytes(), row.index))
    with_next = [common_prefix(a, b) for a, b in itertools.pairwise(ordered)]
    saved, start = [0], [0]
    for end in range(1, len(ordered) + 1):
        best, best_start = saved[end - 1], end - 1
        common = ordered[end - 1].input_length
        for first in range(end - 2, -1, -1):
            common = min(common, with_next[first])
            if common == 0:
                break
            if (gain := saved[first] + (end - 1 - first) * common) > best:
                best, best_start = gain, first
        saved.append(best)
        start.append(best_start)
    blocks: list[list[PackRow]] = []
    end = len(ordered)
    while end > 0:
        blocks.append(ordered[start[end] : end])
        end = start[end]
    return _Piece(blocks[::-1], total - saved[-1])


def common_prefix(a: PackRow, b: PackRow) -> int:
    """How many input tokens two rows have in common at their start."""
    n = min(a.input_length, b.input_length)
    differs = a.tokens[:n] != b.tokens[:n]
    return int(differs.argmax()) if differs.any() else n


def _lay_out(blocks: list[list[PackRow]]) -> MicroBatch:
    """The micro-batch's arrays, block after block."""
    tokens: list[IntArray] = []
    positions: list[IntArray] = []
    placed: list[Block] = []
    homes: dict[int, tuple[int, Run, Run]] = {}
    end = saved = 0
    for members in blocks:
        shared = members[0].input_length
        if len(members) == 1:
            shared = 0
        for a, b in itertools.pairwise(members):
            shared = min(shared, common_prefix(a, b))
        prefix = Run(end, shared)
        tokens.append(members[0].tokens[:shared].astype(np.int64))
        positions.append(_positions(members[0], 0, shared))
        end += shared
        suffixes = []
        for row in members:
            suffix = Run(end, row.input_length - shared)
            tokens.append(row.tokens[shared : row.input_length].astype(np.int64))
            positions.append(_positions(row, shared, row.input_length))
            end += suffix.length
            suffixes.append(suffix)
            homes[row.index] = (shared, prefix, suffix)
        saved += (len(members) - 1) * shared
        placed.append(Block(prefix, tuple(suffixes)))
    rows = sorted((row for members in blocks for row in members), key=lambda row: row.index)
    trajectories = {key: number for number, key in enumerate(dict.fromkeys(row.trajectory for row in rows))}
    counts = [len(row.targets_at) for row in rows]
    return MicroBatch(
        tokens=np.concatenate(tokens),
        positions=np.concatenate(positions, axis=-1),
        blocks=tuple(placed),
        read_at=np.concatenate([_packed_place(row.targets_at - 1, *homes[row.index]) for row in rows]),
        targets=np.concatenate([row.tokens[row.targets_at].astype(np.int64) for row in rows]),
        temperature=np.concatenate([row.temperature for row in rows]).astype(np.float32),
        rows=tuple(rows),
        row=np.repeat(np.arange(len(rows), dtype=np.int64), counts),
        trajectory=np.repeat(np.array([trajectories[row.trajectory] for row in rows], dtype=np.int64), counts),
        saved=saved,
    )


def _positions(row: PackRow, start: int, stop: int) -> IntArray:
    return np.arange(start, stop, dtype=np.int64) if row.positions is None else row.positions[:, start:stop]


def _packed_place(token: IntArray, shared: int, prefix: Run, suffix: Run) -> IntArray:
    """Where tokens of a row (by index in the row) stand in the micro-batch."""
    return np.where(token < shared, prefix.start + token, suffix.start + token - shared)
