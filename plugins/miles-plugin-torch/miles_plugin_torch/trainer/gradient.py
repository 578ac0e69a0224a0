"""The gradient of one optimizer step: micro-batch after micro-batch, summed.

The loss of the step is the sum over its sampled tokens of weight x value, with weights that the loss fixed for the
whole step before any forward pass. So micro-batches of any size add up to the same gradient, and a row whose weights
are all 0 need not be computed.
"""

from __future__ import annotations

from collections.abc import Sequence as Several
from dataclasses import dataclass

import torch

from miles_core import Correction, Loss, LossInputs, Row, RunError
from miles_plugin_torch.trainer.metrics import Averages
from miles_plugin_torch.trainer.options import TorchTrainerOptions
from miles_plugin_torch.trainer.packing import FloatArray, MicroBatch, PackRow, pack
from miles_plugin_torch.trainer.policy import Policy
from miles_plugin_torch.trainer.rows import gather, pack_row
from miles_plugin_torch.vision import Vision


@dataclass(slots=True, eq=False)
class Lesson:
    """What one optimizer step learns from.

    rows       the rows of the step, numbered from 0
    packed     the rows that are computed: those with a sampled token whose weight is not 0
    weights    float32 [n] for each row
    old        float32 [n] log-probs for each row under the weights at the start of the batch; None: the step's own
    reference  float32 [n] for each row under the reference weights, when the loss needs them
    """

    rows: tuple[Row, ...]
    packed: tuple[PackRow, ...]
    weights: list[FloatArray]
    old: list[FloatArray] | None = None
    reference: list[FloatArray] | None = None


def prepare(rows: tuple[Row, ...], loss: Loss[torch.Tensor], vision: Vision | None = None) -> Lesson:
    """Raises RunError naming the trajectory that lacks the rollout log-probs which the loss needs, or whose weights
    are not finite."""
    weights = loss.weights(rows)
    packed = []
    for index, (row, weight) in enumerate(zip(rows, weights, strict=True)):
        packable = pack_row(index, row.sequence, row.trajectory, row.group, vision)
        if packable is None or not weight[packable.targets_at].any():
            continue
        if loss.needs_rollout_logprobs and row.sequence.logprobs is None:
            raise RunError(
                f"the loss needs the log-probs with which tokens were sampled, and trajectory {row.trajectory!r} "
                "has none: nobody sampled it",
                mend="train demonstrations with a supervised loss",
            )
        packed.append(packable)
    return Lesson(rows, tuple(packed), weights)


def micro_batches(packed: Several[PackRow], rows: Several[Row], options: TorchTrainerOptions) -> list[MicroBatch]:
    """Demonstrations and sampled rows are never mixed: of the former there are no rollout log-probs."""
    found: list[MicroBatch] = []
    for demonstrations in (False, True):
        part = [row for row in packed if (rows[row.index].sequence.logprobs is None) == demonstrations]
        found.extend(pack(part, options.micro_tokens, options.share_prefix))
    return found


def accumulate(
    policy: Policy,
    lesson: Lesson,
    loss: Loss[torch.Tensor],
    correction: Correction[torch.Tensor] | None,
    options: TorchTrainerOptions,
    averages: Averages,
) -> dict[str, float]:
    """Add the step's gradient to the parameters' and its token metrics to `averages`. Returns sums over the step.

    Raises RunError naming the trajectory when a log-prob, an importance weight or a loss is not finite.
    """
    sums = {"loss": 0.0, "tokens": 0.0, "computed": 0.0, "saved": 0.0, "micro_batches": 0.0}
    for batch in micro_batches(lesson.packed, lesson.rows, options):
        logprobs = policy(batch)
        inputs = _inputs(batch, lesson, logprobs, correction, averages)
        terms = loss.per_token(inputs)
        _require_finite(terms.values, batch, "loss")
        averages.terms("loss", terms.means, terms.maxima)
        total = (gather(lesson.weights, batch, logprobs.device) * terms.values).sum()
        total.backward()
        sums["loss"] += total.item()
        sums["tokens"] += len(batch.targets)
        sums["computed"] += len(batch.tokens)
        sums["saved"] += batch.saved
        sums["micro_batches"] += 1
    return sums


def _inputs(
    batch: MicroBatch,
    lesson: Lesson,
    logprobs: torch.Tensor,
    correction: Correction[torch.Tensor] | None,
    averages: Averages,
) -> LossInputs[torch.Tensor]:
    _require_finite(logprobs, batch, "log-prob")
    device = logprobs.device
    old = logprobs.detach() if lesson.old is None else gather(lesson.old, batch, device)
    row = torch.from_numpy(batch.row).to(device)
    rollout = None
    weights = torch.ones_like(old)
    if lesson.rows[batch.rows[0].index].sequence.logprobs is not None:
        rollout = gather([line.sequence.logprobs for line in lesson.rows], batch, device)
        log_ratio = old - rollout
        if correction is not None:
            terms = correction.correct(log_ratio, row)
            _require_finite(terms.values, batch, "importance weight")
            own = {"ratio_mean", "ratio_max", "mismatch"}  # measured below in any case, in float64
            averages.terms(
                "correction",
                {name: values for name, values in terms.means.items() if name not in own},
                {name: values for name, values in terms.maxima.items() if name not in own},
            )
            weights = terms.values.detach()
        averages.mismatch(log_ratio)
    return LossInputs(
        logprobs=logprobs,
        old_logprobs=old,
        rollout_logprobs=rollout,
        reference_logprobs=None if lesson.reference is None else gather(lesson.reference, batch, device),
        advantages=gather([line.advantages for line in lesson.rows], batch, device),
        correction=weights,
        row=row,
        trajectory=torch.from_numpy(batch.trajectory).to(device),
    )


def _require_finite(values: torch.Tensor, batch: MicroBatch, what: str) -> None:
    bad = (~values.detach().isfinite()).nonzero()
    if len(bad) == 0:
        return
    place = int(bad[0, 0])
    row = batch.rows[int(batch.row[place])]
    token = int(row.targets_at[place - int((batch.row < batch.row[place]).sum())])
    raise RunError(
        f"the {what} of token {token} of trajectory {row.trajectory!r} is {values[place].item()} "
        f"({len(bad)} such in the micro-batch)",
        mend="look at this trajectory's log-probs and advantages, lower the learning rate or the gradient norm",
    )
