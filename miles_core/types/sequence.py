"""A sequence: one row of tokens that is trained on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from miles_core.errors import ValidationError
from miles_core.types.image import ImageSpans, check_image_spans

TokenArray = npt.NDArray[np.int32]
FloatArray = npt.NDArray[np.float32]
BoolArray = npt.NDArray[np.bool_]
Array = npt.NDArray[Any]

NO_VERSION = 0
"""The weight version of a token that no engine sampled."""


@dataclass(frozen=True, slots=True)
class Span:
    """A run of consecutive tokens that one engine sampled in one request under one weight version.

    `start` and `stop` index into the sequence's tokens, half open. `temperature` is the one that sampling used: the
    log-probs are log-softmax(logits / temperature). Greedy decoding has temperature 0 and log-probs taken at 1.
    """

    start: int
    stop: int
    version: int
    engine: str
    request: str
    turn: int = 0
    temperature: float = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Sequence:
    """One row of n tokens.

    tokens    int32 [n]    token ids, none negative
    sampled   bool [n]     the tokens to learn from: those the policy sampled, or a demonstration's answer
    logprobs  float32 [n]  log-prob of each sampled token under the weights that sampled it, at its temperature and
                           before any truncation of the distribution; 0 elsewhere. None: nobody sampled this row
                           (a demonstration), and a loss that needs rollout log-probs refuses it
    versions  int32 [n]    weight version of each sampled token (>= 1), NO_VERSION elsewhere
    spans     ordered, disjoint runs that cover exactly the sampled tokens; empty when `logprobs` is None
    routing   uint8/uint16/int32 [n-1, layers, k] experts chosen by the engine, or None for dense models
    images    ordered, disjoint: which tokens stand for which image; none of them is sampled

    Raises ValidationError that names the field when lengths, dtypes, mask and log-probs, or spans disagree.
    """

    tokens: TokenArray
    sampled: BoolArray
    logprobs: FloatArray | None
    versions: TokenArray
    spans: tuple[Span, ...] = ()
    routing: Array | None = None
    images: ImageSpans = ()

    def __post_init__(self) -> None:
        n = self._check_shapes()
        if n == 0:
            raise ValidationError("Sequence.tokens is empty")
        if int(self.tokens.min()) < 0:
            raise ValidationError(f"Sequence.tokens has a negative id at {int(self.tokens.argmin())}")
        if self.images:
            self._check_images(n)
        if self.logprobs is None:
            if self.spans or self.versions.any():
                raise ValidationError("Sequence.logprobs is None, but spans or versions say that an engine sampled it")
            return
        self._check_logprobs(self.logprobs)
        self._check_spans(n)

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def sampled_count(self) -> int:
        return int(self.sampled.sum())

    @property
    def prompt_length(self) -> int:
        """How many tokens stand before the first sampled one (all of them when none was sampled)."""
        return int(self.sampled.argmax()) if self.sampled.any() else len(self.tokens)

    def _check_shapes(self) -> int:
        n = len(self.tokens)
        columns: list[tuple[str, Array | None, type[np.generic]]] = [
            ("tokens", self.tokens, np.int32),
            ("sampled", self.sampled, np.bool_),
            ("logprobs", self.logprobs, np.float32),
            ("versions", self.versions, np.int32),
        ]
        for name, array, dtype in columns:
            if array is None:
                continue
            if array.dtype != dtype:
                raise ValidationError(f"Sequence.{name} has dtype {array.dtype}, expected {np.dtype(dtype)}")
            if array.shape != (n,):
                raise ValidationError(f"Sequence.{name} has shape {array.shape}, expected ({n},) like tokens")
        if self.routing is not None and (self.routing.ndim != 3 or self.routing.shape[0] != n - 1):
            raise ValidationError(f"Sequence.routing has shape {self.routing.shape}, expected ({n - 1}, layers, k)")
        return n

    def _check_images(self, n: int) -> None:
        check_image_spans(self.images, n, "Sequence.images")
        for index, span in enumerate(self.images):
            if self.sampled[span.start : span.stop].any():
                raise ValidationError(f"Sequence.images[{index}] covers a sampled token")

    def _check_logprobs(self, logprobs: FloatArray) -> None:
        taken = logprobs[self.sampled]
        if not np.isfinite(taken).all():
            raise ValidationError("Sequence.logprobs is not finite on a sampled token")
        if (taken > 0).any():
            raise ValidationError("Sequence.logprobs is above 0 on a sampled token")
        if logprobs[~self.sampled].any():
            raise ValidationError("Sequence.logprobs is not 0 on a token that was not sampled")

    def _check_spans(self, n: int) -> None:
        covered = np.zeros(n, dtype=np.int32)
        end = 0
        for index, span in enumerate(self.spans):
            if not end <= span.start < span.stop <= n:
                raise ValidationError(
                    f"Sequence.spans[{index}] is [{span.start}, {span.stop}), expected it to start at or after {end}, "
                    f"to be non-empty and to end at or before {n}"
                )
            if span.version < 1:
                raise ValidationError(f"Sequence.spans[{index}].version is {span.version}, expected 1 or more")
            covered[span.start : span.stop] = span.version
            end = span.stop
        if not np.array_equal(covered > 0, self.sampled):
            raise ValidationError("Sequence.spans do not cover exactly the sampled tokens")
        if not np.array_equal(covered, self.versions):
            raise ValidationError("Sequence.versions disagree with the spans' versions")
