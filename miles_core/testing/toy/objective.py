"""The gradient of any numpy loss with respect to log-probs, by small differences.

    d loss / d logprob  =  (loss(logprob + h) - loss(logprob - h)) / 2h

That is right, up to rounding, for losses in which a token's number depends on its own log-prob alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass, replace

import numpy as np

from miles_core.contracts.learning import Correction, Loss, LossInputs
from miles_core.errors import RunError
from miles_core.types.batch import Row
from miles_core.types.sequence import Array

H = 1e-5


@dataclass(frozen=True, slots=True)
class Objective:
    """A loss with its correction, if there is one."""

    loss: Loss[Array]
    correction: Correction[Array] | None = None

    def gradient(self, rows: Several[Row], logprobs: Several[Array]) -> tuple[Array, dict[str, float]]:
        """[T] for the sampled tokens of all rows, one after the other; and metrics. `logprobs` are float64 [n] for each
        row, under the current weights, which are also those at the start of the batch."""
        inputs = _inputs(rows, logprobs)
        metrics: dict[str, float] = {}
        if self.correction is not None and inputs.rollout_logprobs is not None:
            terms = self.correction.correct(inputs.old_logprobs - inputs.rollout_logprobs, inputs.row)
            inputs = replace(inputs, correction=terms.values)
            metrics |= _reduced("correction", terms.means, terms.maxima)
        terms = self.loss.per_token(inputs)
        weights = _flat(rows, self.loss.weights(rows))
        _refuse_nonfinite(rows, weights * terms.values)
        metrics |= {"loss/total": float(np.sum(weights * terms.values)), **_reduced("loss", terms.means, terms.maxima)}
        above = self.loss.per_token(replace(inputs, logprobs=inputs.logprobs + H)).values
        below = self.loss.per_token(replace(inputs, logprobs=inputs.logprobs - H)).values
        return weights * (above - below) / (2 * H), metrics


def _inputs(rows: Several[Row], logprobs: Several[Array]) -> LossInputs[Array]:
    counts = [row.sequence.sampled_count for row in rows]
    trajectories = list(dict.fromkeys(row.trajectory for row in rows))
    reported = [row.sequence.logprobs for row in rows if row.sequence.logprobs is not None]
    current = _flat(rows, logprobs)
    return LossInputs(
        logprobs=current,
        old_logprobs=current,
        rollout_logprobs=_flat(rows, reported) if len(reported) == len(rows) else None,
        reference_logprobs=None,
        advantages=_flat(rows, [row.advantages for row in rows]),
        correction=np.ones(sum(counts)),
        row=np.repeat(np.arange(len(rows)), counts),
        trajectory=np.repeat([trajectories.index(row.trajectory) for row in rows], counts),
    )


def _refuse_nonfinite(rows: Several[Row], losses: Array) -> None:
    """`losses` [T]. Raises RunError naming every trajectory of which one is not finite."""
    names = np.repeat([row.trajectory for row in rows], [row.sequence.sampled_count for row in rows])
    wrong = list(dict.fromkeys(names[~np.isfinite(losses)].tolist()))
    if wrong:
        raise RunError(f"the loss of {', '.join(wrong)} is not finite")


def _flat(rows: Several[Row], arrays: Several[Array]) -> Array:
    return np.concatenate([array[row.sequence.sampled] for row, array in zip(rows, arrays, strict=True)])


def _reduced(prefix: str, means: Mapping[str, Array], maxima: Mapping[str, Array]) -> dict[str, float]:
    metrics = {f"{prefix}/{name}": float(np.mean(values)) for name, values in means.items()}
    return metrics | {f"{prefix}/{name}": float(np.max(values)) for name, values in maxima.items()}
