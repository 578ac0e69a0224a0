"""KV memory of bounded size: rows of running requests, and stored prefixes that later requests reuse.

A running request owns one row of a *slab*: for each layer keys and values [rows, kv_heads, capacity, d]. Requests of
about the same capacity share a slab; its rows in use are always the first ones, so that a decode step attends to a slab
with a few batched products and no gathering. A *prefix* is the KV of a token sequence that was computed once: a prompt,
or a finished turn. Rows are filled from prefixes by copying, which costs a thousandth of computing them.

Memory is counted in tokens: rows by their capacity, prefixes by their length. Tensors lie one a layer: a single tensor
for all layers was measured three times slower.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from miles_core import RunError
from miles_plugin_torch.engine.prefix_index import PrefixIndex, TokenArray

ROW_STEP = 64
GROW_ROWS = 8


@dataclass(frozen=True, slots=True)
class KVShape:
    """What one token's keys and values look like, and where they are kept."""

    layers: int
    kv_heads: int
    head_dim: int
    dtype: torch.dtype
    device: torch.device

    def zeros(self, rows: int, tokens: int) -> list[torch.Tensor]:
        """Keys and values of layer 0, of layer 1, ...: each [rows, kv_heads, tokens, d].

        Zeros, since what lies beyond a row's length is multiplied by 0 in attention and must be finite; zero pages that
        nobody touches cost no memory.
        """
        shape = (rows, self.kv_heads, tokens, self.head_dim)
        return [torch.zeros(shape, dtype=self.dtype, device=self.device) for _ in range(2 * self.layers)]


@dataclass(slots=True, eq=False)
class Prefix:
    """KV of `tokens` [n]: `kv` as from `KVShape.zeros`, of which the first `done` tokens are computed.

    `final` is the final state of the last token, from which the next one can be sampled; None when it is not known.
    `users` counts requests that still need it: such a prefix is not evicted.
    """

    tokens: TokenArray
    kv: list[torch.Tensor]
    done: int = 0
    final: torch.Tensor | None = None
    users: int = 0
    last_used: int = 0

    def __len__(self) -> int:
        return len(self.tokens)


@dataclass(slots=True, eq=False)
class Slot:
    """The row of one running request; `length` tokens of it are computed. `row` changes when other rows leave."""

    slab: Slab
    row: int
    length: int


@dataclass(slots=True, eq=False)
class Slab:
    """Rows of one capacity. The first len(slots) of `rows` are in use, in the order of `slots`."""

    capacity: int
    kv: list[torch.Tensor]
    rows: int = 0
    slots: list[Slot] = field(default_factory=list)


def row_capacity(tokens: int) -> int:
    """The capacity that a request of at most `tokens` tokens gets: steps of 64, then of a quarter of the power of two
    below, so that few capacities occur and at most a fifth of a row lies idle."""
    step = max(ROW_STEP, 1 << max(0, (tokens - 1).bit_length() - 3))
    return -(-tokens // step) * step


class KVMemory:
    """All KV of an engine. Never holds more than `limit` tokens."""

    def __init__(self, shape: KVShape, limit: int) -> None:
        self.shape = shape
        self.limit = limit
        self.slabs: dict[int, Slab] = {}
        self.prefixes: list[Prefix] = []
        self.promised = 0
        self._tick = 0
        self._index: PrefixIndex[Prefix] = PrefixIndex()

    def held(self) -> int:
        """Tokens of memory in use or promised to requests that will soon open a row."""
        rows = sum(slab.rows * slab.capacity for slab in self.slabs.values())
        return self.promised + rows + sum(len(prefix) for prefix in self.prefixes)

    def make_room(self, tokens: int) -> bool:
        """See that `tokens` more fit: give up idle rows, then the prefixes unused for longest. False: they do not."""
        if self.held() + tokens <= self.limit:
            return True
        for slab in list(self.slabs.values()):
            self._resize(slab, len(slab.slots))
        for prefix in sorted(self.prefixes, key=lambda prefix: prefix.last_used):
            if self.held() + tokens <= self.limit:
                break
            if not prefix.users:
                self.prefixes.remove(prefix)
                self._index.remove(prefix)
        return self.held() + tokens <= self.limit

    # Prefixes

    def find(self, tokens: TokenArray) -> tuple[Prefix | None, int]:
        """A stored prefix that begins like `tokens`, and how many of its leading tokens can be reused."""
        prefix, common = self._index.find(tokens)
        if prefix is None:
            return None, 0
        self.touch(prefix)
        return prefix, min(common, prefix.done)

    def store(self, prefix: Prefix) -> None:
        """A prefix is complete: let `find` see it."""
        self._index.add(prefix)

    def touch(self, prefix: Prefix) -> None:
        self._tick += 1
        prefix.last_used = self._tick

    def new_prefix(self, tokens: TokenArray) -> Prefix:
        """An empty prefix for `tokens`. The caller has made room."""
        prefix = Prefix(tokens, self.shape.zeros(1, len(tokens)))
        self.touch(prefix)
        self.prefixes.append(prefix)
        return prefix

    def copy_prefix(self, prefix: Prefix, base: Prefix, count: int) -> None:
        """Take over the first `count` tokens of `base`."""
        for new, old in zip(prefix.kv, base.kv, strict=True):
            new[:, :, :count].copy_(old[:, :, :count])
        prefix.done = count

    def drop_unused(self) -> None:
        """Forget the prefixes that no request needs."""
        for prefix in self.prefixes:
            if not prefix.users:
                self._index.remove(prefix)
        self.prefixes = [prefix for prefix in self.prefixes if prefix.users]

    def keep(self, tokens: TokenArray, slot: Slot) -> None:
        """Store the KV of a finished request, unless that would evict what is in use."""
        if self._index.find(tokens)[1] == len(tokens) or not self.make_room(len(tokens)):
            return
        prefix = self.new_prefix(tokens)
        prefix.done = len(tokens)
        for new, rows in zip(prefix.kv, slot.slab.kv, strict=True):
            new[0].copy_(rows[slot.row, :, : len(tokens)])
        self.store(prefix)

    # Rows

    def open_rows(self, prefix: Prefix, capacity: int, count: int) -> list[Slot]:
        """Rows for `count` requests that all go on from `prefix`. The caller has made room for them."""
        slab = self.slabs.setdefault(capacity, Slab(capacity, self.shape.zeros(0, capacity)))
        first, length = len(slab.slots), len(prefix)
        if first + count > slab.rows:
            spare = GROW_ROWS if self.held() + (count + GROW_ROWS) * capacity <= self.limit else 0
            self._resize(slab, first + count + spare)
            if self.held() > self.limit:
                raise RunError(f"KV memory holds {self.held()} tokens, more than its bound {self.limit}")
        for rows, source in zip(slab.kv, prefix.kv, strict=True):
            rows[first : first + count, :, :length].copy_(source)
        slots = [Slot(slab, first + index, length) for index in range(count)]
        slab.slots.extend(slots)
        return slots

    def close_row(self, slot: Slot) -> None:
        """Give a row back; the slab's last row moves into its place."""
        slab, last = slot.slab, slot.slab.slots.pop()
        if last is not slot:
            for rows in slab.kv:
                rows[slot.row, :, : last.length].copy_(rows[last.row, :, : last.length])
            slab.slots[slot.row] = last
            last.row = slot.row

    def clear(self) -> None:
        """Forget everything; no row may be in use."""
        self.promised = 0
        self.slabs.clear()
        self.prefixes.clear()
        self._index.clear()

    def _resize(self, slab: Slab, rows: int) -> None:
        if rows == slab.rows:
            return
        if rows == 0:
            del self.slabs[slab.capacity]
            slab.rows = 0
            return
        used = len(slab.slots)
        longest = max((slot.length for slot in slab.slots), default=0)
        for index, old in enumerate(slab.kv):  # one by one, so that only one tensor exists twice
            new = torch.zeros(rows, *old.shape[1:], dtype=old.dtype, device=old.device)
            new[:used, :, :longest].copy_(old[:used, :, :longest])
            slab.kv[index] = new
        slab.rows = rows
