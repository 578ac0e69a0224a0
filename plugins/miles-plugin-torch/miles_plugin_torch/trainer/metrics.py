"""Metrics of one batch, gathered over micro-batches and optimizer steps."""

from __future__ import annotations

from collections.abc import Mapping

import torch


class Averages:
    """Means over all tokens added, and maxima. Sums are kept in float64."""

    def __init__(self) -> None:
        self._sums: dict[str, tuple[float, int]] = {}
        self._maxima: dict[str, float] = {}

    def mean(self, name: str, values: torch.Tensor) -> None:
        """`values` [T], one for each token."""
        total, count = self._sums.get(name, (0.0, 0))
        self._sums[name] = (total + float(values.detach().double().sum()), count + values.numel())

    def maximum(self, name: str, values: torch.Tensor) -> None:
        if values.numel():
            largest = float(values.detach().double().max())
            self._maxima[name] = max(largest, self._maxima.get(name, largest))

    def terms(self, prefix: str, means: Mapping[str, torch.Tensor], maxima: Mapping[str, torch.Tensor]) -> None:
        for name, values in means.items():
            self.mean(f"{prefix}/{name}", values)
        for name, values in maxima.items():
            self.maximum(f"{prefix}/{name}", values)

    def mismatch(self, log_ratio: torch.Tensor) -> None:
        """r = exp(trainer's log-prob - engine's) of each token, before any clamping: its mean, its maximum, and mean
        |r - 1|."""
        ratio = log_ratio.detach().double().exp()
        self.mean("correction/ratio_mean", ratio)
        self.maximum("correction/ratio_max", ratio)
        self.mean("correction/mismatch", (ratio - 1).abs())

    def values(self) -> dict[str, float]:
        means = {name: total / count for name, (total, count) in self._sums.items() if count}
        return {**means, **self._maxima}
