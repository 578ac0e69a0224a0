"""How tokens are sampled, and the key that their noise is a function of."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Sampling:
    """Sampling of one request. `temperature` 0 is greedy. Log-probs are reported at `temperature` (greedy: at 1) and
    before truncation by `top_p` or `top_k`, which an engine must declare as a capability."""

    temperature: float = 1.0
    max_new_tokens: int = 256
    top_p: float = 1.0
    top_k: int = 0
    stop_tokens: tuple[int, ...] = ()
    ignore_stop: bool = False


@dataclass(frozen=True, slots=True)
class NoiseKey:
    """What the randomness of one request is a pure function of, beside the token position; never arrival order.

    The same key gives the same tokens in any batch, on any replica, up to floating-point ties.
    """

    seed: int
    purpose: str
    task: str
    draw: int
    index: int
    turn: int = 0

    def digest(self) -> int:
        """A 63-bit integer for seeding a generator; equal on every machine and Python version."""
        text = "\x1f".join((str(self.seed), self.purpose, self.task, str(self.draw), str(self.index), str(self.turn)))
        return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little") >> 1
