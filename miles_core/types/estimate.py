"""Numbers with their uncertainty, and pass@k."""

from __future__ import annotations

import math
from dataclasses import dataclass

from miles_core.errors import ValidationError


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean over `n` values and its 95 % interval; `low` and `high` are None when nobody knows it, as for n < 2."""

    mean: float
    low: float | None
    high: float | None
    n: int


def pass_at_k(attempts: int, right: int, k: int) -> float:
    """The chance that at least one of k attempts is right, estimated without bias from n attempts of which c are:

        pass@k = 1 - C(n - c, k) / C(n, k)      (Chen et al. 2021, arXiv 2107.03374, equation 1)

    Raises ValidationError unless 0 <= right <= attempts and 1 <= k <= attempts.
    """
    if not (0 <= right <= attempts and 1 <= k <= attempts):
        raise ValidationError(f"pass@{k} was asked of {attempts} attempts, {right} of them right")
    return 1.0 - math.comb(attempts - right, k) / math.comb(attempts, k)
