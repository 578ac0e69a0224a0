"""A weight matrix cut into panels, so that products with few rows run near the processor's speed.

In decoding, x has as many rows as requests run (1 to 64), so y = x Wᵀ reads far more of W than of x. BLAS libraries
spend much of such a product on repacking W. Kept as contiguous panels [P, K, w] (w output columns each), the product is
one batched product of x with P small matrices that fit the cache and are read in order: 1.2 to 1.5 times as fast as
the usual layout with 4 to 64 rows, and never slower beyond. docs/performance.md has the figures.
"""

from __future__ import annotations

import torch

WIDEST = 256
NARROWEST = 32


def panel_width(rows: int, multiple: int = 1) -> int:
    """The widest divisor of `rows` up to WIDEST that is a multiple of `multiple`; `rows` where none is wide enough."""
    widths = [w for w in range(multiple, min(rows, WIDEST) + 1, multiple) if rows % w == 0]
    return widths[-1] if widths and widths[-1] >= NARROWEST else rows


class Panels:
    """W [N, K] as `data` [N/width, K, width]; `bias` [N/width, 1, width] or None."""

    def __init__(
        self, rows: int, columns: int, width: int, *, bias: bool, device: torch.device, dtype: torch.dtype
    ) -> None:
        if rows % width:
            raise ValueError(f"panels of {width} rows do not divide {rows} rows")
        self.width = width
        self.data = torch.empty(rows // width, columns, width, device=device, dtype=dtype)
        self.bias = torch.empty(rows // width, 1, width, device=device, dtype=dtype) if bias else None

    def region(self, start: int, count: int, *, bias: bool = False) -> torch.Tensor:
        """The view that holds rows [start, start + count) of W: [count/width, K, width], or of the bias
        [count/width, 1, width]. start and count are multiples of the width."""
        stored = self.bias if bias else self.data
        if stored is None:
            raise KeyError("bias")
        return stored[start // self.width : (start + count) // self.width]

    def product(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, K] -> [P, T, width]: the columns of x Wᵀ + bias, panel by panel."""
        x = x.unsqueeze(0).expand(len(self.data), -1, -1)
        return torch.bmm(x, self.data) if self.bias is None else torch.baddbmm(self.bias, x, self.data)

    def add_product(self, x: torch.Tensor, total: torch.Tensor) -> None:
        """total [T, N] += x Wᵀ + bias, in place."""
        panels = self.product(x)
        total.view(len(total), len(panels), self.width).add_(panels.transpose(0, 1))

    def rows(self, indices: torch.Tensor) -> torch.Tensor:
        """Rows W[indices], [T, K]: an embedding lookup in a tied head."""
        return self.data[indices // self.width, :, indices % self.width]
