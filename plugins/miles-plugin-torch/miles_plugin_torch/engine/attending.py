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
        kv_heads, offset = k.shape[1], 0
        for chunk, mask in zip(self._chunks, self._masks, strict=True):
            here = slice(offset, offset + chunk.stop - chunk.start)
            kv = chunk.prefix.kv[layer][0]
            kv[:kv_heads, chunk.start : chunk.stop].copy_(k[here].transpose(0, 1))
            kv[kv_heads:, chunk.start : chunk.stop].copy_(v[here].transpose(0, 1))
            out[here] = _grouped(q[here], kv[:, : chunk.stop], mask, scale)
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


def _grouped(q: torch.Tensor, kv: torch.Tensor, mask: torch.Tensor | None, scale: float) -> torch.Tensor:
    """q [n, heads, d] to kv [2 · kv_heads, L, d] -> [n, heads, d]. The kv heads act as the batch."""
    count, heads, size = q.shape
    kv_heads = len(kv) // 2
    group = heads // kv_heads
    queries = q.reshape(count, kv_heads, group, size).permute(1, 2, 0, 3)
    keys = kv[:kv_heads].unsqueeze(1).expand(-1, group, -1, -1)
    values = kv[kv_heads:].unsqueeze(1).expand(-1, group, -1, -1)
    mixed = F.scaled_dot_product_attention(
        queries, keys, values, attn_mask=mask, is_causal=mask is None and count > 1, scale=scale
    )
    return mixed.permute(2, 0, 1, 3).reshape(count, heads, size)


class DecodeAttention:
    """One token of each running request, slab by slab and row by row; each attends to its own row.

    `positions` are the tokens' positions, in that order.
    """

    def __init__(self, slabs: list[Slab], dtype: torch.dtype, device: torch.device) -> None:
        self._parts = []
        every: list[int] = []
        for slab in slabs:
            lengths = [slot.length for slot in slab.slots]
            every.extend(lengths)
            positions = torch.tensor(lengths, device=device)
            width = max(lengths) + 1
            hidden = torch.arange(width, device=device) > positions.unsqueeze(1)
            mask = torch.zeros(len(lengths), 1, 1, width, dtype=dtype, device=device)
            mask.masked_fill_(hidden[:, None, None], float("-inf"))
            self._parts.append((slab, torch.arange(len(lengths), device=device), positions, mask))
        self.positions = torch.tensor(every, device=device)

    def __call__(self, layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, scale: float) -> torch.Tensor:
        kv_heads, offset = k.shape[1], 0
        group = q.shape[1] // kv_heads
        outputs = []
        for slab, rows, positions, mask in self._parts:
            count, width = len(rows), mask.shape[-1]
            here = slice(offset, offset + count)
            keys, values = slab.kv[layer][:count, :kv_heads], slab.kv[layer][:count, kv_heads:]
            keys[rows, :, positions] = k[here]
            values[rows, :, positions] = v[here]
            # the query heads of one kv head stand where a kernel expects query positions: K and V are read once
            mixed = F.scaled_dot_product_attention(
                q[here].reshape(count, kv_heads, group, -1),
                keys[:, :, :width],
                values[:, :, :width],
                attn_mask=mask.expand(-1, 1, group, -1),
                scale=scale,
            )
            outputs.append(mixed.reshape(count, q.shape[1], -1))
            offset += count
        return outputs[0] if len(outputs) == 1 else torch.cat(outputs)
