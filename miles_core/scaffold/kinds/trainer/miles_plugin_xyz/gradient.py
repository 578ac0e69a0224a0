"""The gradient of any loss with respect to the log-prob of each token, by small differences.

    d loss / d logprob  =  (loss(logprob + h) - loss(logprob - h)) / 2h

That is right for losses in which a token's number depends on its own log-prob alone.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from miles_core import Correction, Loss, LossInputs, Row, RunError
from numpy.typing import NDArray

H = 1e-5


class Objective:
    """A loss with its correction, if there is one."""

    def __init__(self, loss: Loss[NDArray[Any]], correction: Correction[NDArray[Any]] | None) -> None:
        self._loss = loss
        self._correction = correction

    def gradient(
        self, rows: Sequence[Row], logprobs: Sequence[NDArray[Any]], old: Sequence[NDArray[Any]]
    ) -> tuple[list[NDArray[Any]], dict[str, float]]:
        """For each row [n], 0 where nothing was sampled; and metrics. `logprobs` and `old` are [n] for each row."""
        sampled = [row.sequence.sampled for row in rows]
        inputs = flat_inputs(rows, logprobs, old)
        metrics: dict[str, float] = {}
        if self._correction is not None and inputs.rollout_logprobs is not None:
            terms = self._correction.correct(inputs.old_logprobs - inputs.rollout_logprobs, inputs.row)
            inputs = replace(inputs, correction=terms.values)
            metrics |= _means("correction", terms.means, terms.maxima)
        terms = self._loss.per_token(inputs)
        if not np.isfinite(terms.values).all():
            row = int(inputs.row[np.isfinite(terms.values).argmin()])
            raise RunError(f"the loss of trajectory {rows[row].trajectory!r} is not finite")
        weights = flat(self._loss.weights(rows), sampled)
        metrics |= {"loss/total": float(np.sum(weights * terms.values))} | _means("loss", terms.means, terms.maxima)
        above = self._loss.per_token(replace(inputs, logprobs=inputs.logprobs + H)).values
        below = self._loss.per_token(replace(inputs, logprobs=inputs.logprobs - H)).values
        return unflat(weights * (above - below) / (2 * H), sampled), metrics


def flat_inputs(
    rows: Sequence[Row], logprobs: Sequence[NDArray[Any]], old: Sequence[NDArray[Any]]
) -> LossInputs[NDArray[Any]]:
    """The sampled tokens of all rows, one after the other."""
    sampled = [row.sequence.sampled for row in rows]
    names = list(dict.fromkeys(row.trajectory for row in rows))
    reported = [row.sequence.logprobs for row in rows]
    known = [each for each in reported if each is not None]
    counts = [int(mask.sum()) for mask in sampled]
    return LossInputs(
        logprobs=flat(logprobs, sampled),
        old_logprobs=flat(old, sampled),
        rollout_logprobs=flat(known, sampled) if len(known) == len(rows) else None,
        reference_logprobs=None,
        advantages=flat([row.advantages for row in rows], sampled),
        correction=np.ones(sum(counts)),
        row=np.repeat(np.arange(len(rows)), counts),
        trajectory=np.repeat([names.index(row.trajectory) for row in rows], counts),
    )


def flat(arrays: Sequence[NDArray[Any]], sampled: Sequence[NDArray[np.bool_]]) -> NDArray[Any]:
    return np.concatenate([array[mask] for array, mask in zip(arrays, sampled, strict=True)])


def unflat(values: NDArray[Any], sampled: Sequence[NDArray[np.bool_]]) -> list[NDArray[Any]]:
    rows, start = [], 0
    for mask in sampled:
        stop = start + int(mask.sum())
        row = np.zeros(len(mask))
        row[mask] = values[start:stop]
        rows.append(row)
        start = stop
    return rows


def _means(prefix: str, means: Mapping[str, NDArray[Any]], maxima: Mapping[str, NDArray[Any]]) -> dict[str, float]:
    reduced = {f"{prefix}/{name}": float(np.mean(values)) for name, values in means.items()}
    return reduced | {f"{prefix}/{name}": float(np.max(values)) for name, values in maxima.items()}
