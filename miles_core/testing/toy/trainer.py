"""A trainer of the toy model: plain gradient descent on the exact gradient of log-softmax."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Several
from pathlib import Path

import numpy as np
from pydantic import Field

from miles_core.contracts.component import BuildContext, ComponentRef
from miles_core.contracts.learning import LossInputs
from miles_core.contracts.options import TrainerOptions
from miles_core.contracts.trainer import StepReport, TrainerFacts
from miles_core.contracts.transport import Delivery, TensorInfo, WireTensor
from miles_core.errors import RunError
from miles_core.testing.fakes.char_renderer import VOCABULARY
from miles_core.testing.toy.learning import ToyLoss
from miles_core.testing.toy.model import TENSOR
from miles_core.types.batch import Batch, Row
from miles_core.types.sequence import Array, FloatArray, Sequence


class ToyTrainerOptions(TrainerOptions):
    """Options of the toy trainer."""

    learning_rate: float = Field(default=100.0, gt=0, description="step size of gradient descent")


class ToyTrainer:
    """See `contracts.trainer.Trainer`."""

    def __init__(self, options: ToyTrainerOptions, context: BuildContext) -> None:
        self._options = options
        self._context = context
        self._logits: Array = np.zeros(VOCABULARY, np.float64)
        self._transport = context.part("transport") if "transport" in context.parts else None
        self._loss: ToyLoss | None = None

    def facts(self) -> TrainerFacts:
        info = TensorInfo(TENSOR, (VOCABULARY,), "float32")
        return TrainerFacts(parameters=VOCABULARY, trainable=VOCABULARY, tensors=(info,))

    def begin_phase(self, parts: Mapping[str, ComponentRef]) -> None:
        self._loss = parts["loss"].build(self._context)

    def score(self, sequences: Several[Sequence]) -> list[FloatArray]:
        logprobs = self._logits - np.logaddexp.reduce(self._logits)
        return [np.where(s.sampled, logprobs[s.tokens], 0.0).astype(np.float32) for s in sequences]

    def step(self, batch: Batch) -> StepReport:
        if self._loss is None:
            raise RunError("begin_phase was not called")
        loss = 0.0
        gradient = np.zeros(VOCABULARY)
        probabilities = np.exp(self._logits - np.logaddexp.reduce(self._logits))
        for row, weights, logprobs in zip(
            batch.rows, self._loss.weights(batch.rows), self.score([r.sequence for r in batch.rows]), strict=True
        ):
            learned = row.sequence.sampled
            values = self._loss.per_token(_inputs(row, logprobs[learned])).values
            loss += float(np.sum(weights[learned] * values))
            # d(-advantage x log p[token]) / d logits = -advantage x (onehot(token) - p)
            pull = weights[learned] * row.advantages[learned]
            np.add.at(gradient, row.sequence.tokens[learned], -pull)
            gradient += pull.sum() * probabilities
        norm = float(np.linalg.norm(gradient))
        if not np.isfinite(norm):
            raise RunError(f"the gradient of step {batch.step} is not finite")
        self._logits = self._logits - self._options.learning_rate * gradient
        return StepReport({"loss/total": loss, "trainer/grad_norm": norm})

    def send(self, version: int) -> Delivery:
        if self._transport is None:
            raise RunError("the trainer was built without a transport")
        delivery: Delivery = self._transport.send(version, self._tensors())
        return delivery

    def release(self, version: int) -> None:
        if self._transport is not None:
            self._transport.release(version)

    def save(self, folder: Path) -> None:
        (folder / "toy.json").write_text(json.dumps({"logits": self._logits.tolist()}))

    def load(self, folder: Path) -> None:
        self._logits = np.array(json.loads((folder / "toy.json").read_text())["logits"])

    def export(self, folder: Path) -> None:
        self.save(folder)

    def close(self) -> None:
        pass

    def _tensors(self) -> Iterator[WireTensor]:
        data = self._logits.astype(np.float32)
        yield WireTensor(TensorInfo(TENSOR, data.shape, "float32"), data.view(np.uint8))


def _inputs(row: Row, logprobs: FloatArray) -> LossInputs[Array]:
    """The sampled tokens of one row, as a micro-batch of its own."""
    learned = row.sequence.sampled
    zeros = np.zeros(len(logprobs), np.int64)
    rollout = None if row.sequence.logprobs is None else row.sequence.logprobs[learned]
    ones = np.ones(len(logprobs), np.float32)
    return LossInputs(logprobs, logprobs, rollout, None, row.advantages[learned], ones, zeros, zeros)
