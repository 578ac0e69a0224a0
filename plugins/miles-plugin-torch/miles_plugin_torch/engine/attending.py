"""The two ways in which the engine attends: prompts to prefixes, and running requests to their rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
import torch.nn.functional as F

from miles_plugin_torch.engine.kv import Prefix, Slab


@dataclass(frozen=True, slots=True)
class Chunk:
    """The next tokens [start, stop) of a prefix that is being computed."""

    prefix: Prefix
    start: int
    stop: int


class PrefillAttention:
    """Tokens of several chunks, one chunk after the other; each attends to its own prefix, causally."""

    def __init__(self, chunks: list[Chunk], dtype: torch.dtype, device: torch.device) -> None:
        self._chunks = chunks
        self._masks = [_causal(chunk, dtype, device) for chunk in chunks]

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        out = torch.empty(q.shape, dtype=q.dtype, device=q.device)
        offset = 0
        for chunk, mask in zip(self._chunks, self._masks, strict=True):
            here = slice(offset, offset + chunk.stop - chunk.start)
            keys, values = chunk.prefix.kv[2 * layer][0], chunk.prefix.kv[2 * layer + 1][0]
            keys[:, chunk.start : chunk.stop].copy_(k[here].transpose(0, 1))
            values[:, chunk.start : chunk.stop].copy_(v[here].transpose(0, 1))
            out[here] = _grouped(q[here], keys[:, : chunk.stop], values[:, : chunk.stop], mask, scale)
            offset = here.stop
        return out


def _causal(chunk: Chunk, dtype: torch.dtype, device: torch.device) -> torch.Tensor | None:
    """None from the start of a sequence (the kernel's own causal mask serves), else an additive mask
    [stop - start, stop] that lets token i see up to itself."""
    if chunk.start == 0:
        return None
    count = chunk.stop - chunk.start
    mask = torch.full((count, chunk.stop), float("-inf"), dtype=dtype, device=device)
    return mask.triu_(chunk.start + 1)


def _grouped(
    q: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, mask: torch.Tensor | None, scale: float
) -> torch.Tensor:
    """q [n, heads, d] to keys and values [kv_heads, L, d] -> [n, heads, d]. The kv heads act as the batch."""
    count, heads, size = q.shape
    group = heads // len(keys)
    mixed = F.scaled_dot_product_attention(
        q.reshape(count, -1, group, size).permute(1, 2, 0, 3),
        keys.unsqueeze(1).expand(-1, group, -1, -1),
        values.unsqueeze(1).expand(-1, group, -1, -1),
        attn_mask=mask,
        is_causal=mask is None and count > 1,
        scale=scale,
    )
    return mixed.permute(2, 0, 1, 3).reshape(count, heads, size)


@dataclass(frozen=True, slots=True)
class _Rows:
    """The running requests of one slab: where they are, and what hides the tokens beyond each one's own
    (`mask` [rows · kv_heads, 1, width])."""

    slab: Slab
    rows: torch.Tensor
    positions: torch.Tensor
    mask: torch.Tensor


class DecodeAttention:
    """One token of each running request, slab by slab and row by row; each attends to its own row.

    `positions` are the tokens' positions, in that order. softmax(q Kᵀ · scale + mask) V is written out: with the few
    query heads of a kv head as the rows of each product, that is quicker on a CPU than the fused kernel.
    """

    def __init__(self, slabs: list[Slab], kv_heads: int, dtype: torch.dtype, device: torch.device) -> None:
        self._parts = []
        every: list[int] = []
        for slab in slabs:
            lengths = [slot.length for slot in slab.slots]
            every.extend(lengths)
            positions = torch.tensor(lengths, device=device)
            hidden = torch.arange(max(lengths) + 1, device=device) > positions.unsqueeze(1)
            mask = torch.zeros(hidden.shape, dtype=dtype, device=device).masked_fill_(hidden, float("-inf"))
            mask = mask.repeat_interleave(kv_heads, 0).unsqueeze(1)
            self._parts.append(_Rows(slab, torch.arange(len(lengths), device=device), positions, mask))
        self.positions = torch.tensor(every, device=device)

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        offset = 0
        outputs = []
        for part in self._parts:
            here = slice(offset, offset + len(part.rows))
            outputs.append(_attend_rows(part, layer, q[here], k[here], v[here], scale))
            offset = here.stop
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)


def _attend_rows(
    part: _Rows, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float
) -> torch.Tensor:
    """q [n, heads, d], k and v [n, kv_heads, d] of one slab's rows -> [n, heads, d]."""
    (count, heads, size), kv_heads, width = q.shape, k.shape[1], part.mask.shape[-1]
    keys, values = part.slab.kv[2 * layer][:count], part.slab.kv[2 * layer + 1][:count]
    keys[part.rows, :, part.positions] = k
    values[part.rows, :, part.positions] = v
    keys = keys.view(count * kv_heads, -1, size)[:, :width]
    values = values.view(count * kv_heads, -1, size)[:, :width]
    queries = q.reshape(count * kv_heads, heads // kv_heads, size)
    scores = torch.baddbmm(part.mask, queries, keys.transpose(1, 2), alpha=scale)
    return torch.bmm(torch.softmax(scores, -1), values).view(count, heads, size)
