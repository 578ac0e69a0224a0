"""A trainer of one vector of logits, in numpy."""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from miles_core import (
    Batch,
    BuildContext,
    ComponentRef,
    Delivery,
    RequestError,
    Row,
    RunError,
    StepReport,
    TensorInfo,
    TrainerFacts,
    WireTensor,
)
from miles_core import Sequence as TokenRow
from numpy.typing import NDArray

from miles_plugin_xyz.gradient import Objective
from miles_plugin_xyz.options import XyzOptions

TENSOR = "logits"
FILE = "xyz.json"


class XyzTrainer:
    """See `miles_core.Trainer`. Weights, momentum and log-probs are float64; what is sent is float32."""

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        if context.model is None:
            raise RequestError("trainer xyz needs a model", mend="write `model: {use: toy}`")
        self._options = options
        self._context = context
        self._weights: NDArray[Any] = np.zeros(context.model.card.vocabulary)
        self._velocity: NDArray[Any] = np.zeros_like(self._weights)
        self._transport = context.part("transport") if "transport" in context.parts else None
        self._precision = context.part("precision") if "precision" in context.parts else None
        self._objective: Objective | None = None

    def facts(self) -> TrainerFacts:
        sent = tuple(self._precision.layout(self._info())) if self._precision else (self._info(),)
        return TrainerFacts(parameters=len(self._weights), trainable=len(self._weights), tensors=sent)

    def begin_phase(self, parts: Mapping[str, ComponentRef]) -> None:
        correction = parts["correction"].build(self._context) if "correction" in parts else None
        self._objective = Objective(parts["loss"].build(self._context), correction)

    def score(self, sequences: Sequence[TokenRow]) -> list[NDArray[np.float32]]:
        return [self._logprobs(sequence).astype(np.float32) for sequence in sequences]

    def step(self, batch: Batch) -> StepReport:
        if self._objective is None:
            raise RunError("a batch came before a phase", mend="begin_phase is called first")
        old = {id(row): self._logprobs(row.sequence) for row in batch.rows}
        reports = []
        for rows in parts_of(batch, self._options.optimizer_steps):
            current = [self._logprobs(row.sequence) for row in rows]
            gradient, report = self._objective.gradient(rows, current, [old[id(row)] for row in rows])
            reports.append(report | {"trainer/grad_norm": self._descend(batch.step, rows, gradient)})
        return StepReport({name: float(np.mean([report[name] for report in reports])) for name in reports[0]})

    def send(self, version: int) -> Delivery:
        if self._transport is None:
            raise RunError("the trainer was built without a transport")
        delivery: Delivery = self._transport.send(version, self._tensors())
        return delivery

    def release(self, version: int) -> None:
        if self._transport is not None:
            self._transport.release(version)

    def save(self, folder: Path) -> None:
        state = {"weights": self._weights.tolist(), "velocity": self._velocity.tolist()}
        (folder / FILE).write_text(json.dumps(state))

    def load(self, folder: Path) -> None:
        state = json.loads((folder / FILE).read_text())
        if len(state["weights"]) != len(self._weights):
            raise RequestError("the checkpoint belongs to a model of another size", where=str(folder))
        self._weights, self._velocity = np.array(state["weights"]), np.array(state["velocity"])

    def export(self, folder: Path) -> None:
        self.save(folder)

    def close(self) -> None:
        pass

    def _logprobs(self, sequence: TokenRow) -> NDArray[Any]:
        """[n], 0 where nothing was sampled; each span at the temperature that it was sampled with."""
        logprobs = np.zeros(len(sequence))
        temperatures = np.ones(len(sequence))
        for span in sequence.spans:
            temperatures[span.start : span.stop] = span.temperature or 1.0
        for temperature in np.unique(temperatures):
            chosen = sequence.sampled & (temperatures == temperature)
            logprobs[chosen] = log_softmax(self._weights / temperature)[sequence.tokens[chosen]]
        return logprobs

    def _descend(self, step: int, rows: Sequence[Row], pull: Sequence[NDArray[Any]]) -> float:
        """One step against the gradient; `pull` is that of each row's log-probs. Returns the gradient's norm.

        d log p[token] / d weights = onehot(token) - p
        """
        gradient = np.zeros_like(self._weights)
        for row, of_row in zip(rows, pull, strict=True):
            np.add.at(gradient, row.sequence.tokens, of_row)
            gradient -= of_row.sum() * np.exp(log_softmax(self._weights))
        norm = float(np.linalg.norm(gradient))
        if not np.isfinite(norm):
            raise RunError(f"the gradient of step {step} is not finite")
        self._velocity = self._options.momentum * self._velocity - self._options.learning_rate * gradient
        self._weights = self._weights + self._velocity
        return norm

    def _info(self) -> TensorInfo:
        return TensorInfo(TENSOR, self._weights.shape, "float32")

    def _tensors(self) -> Iterator[WireTensor]:
        tensor = WireTensor(self._info(), self._weights.astype(np.float32).view(np.uint8))
        yield from self._precision.encode(tensor) if self._precision else (tensor,)


def log_softmax(logits: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(logits - np.logaddexp.reduce(logits))


def parts_of(batch: Batch, count: int) -> list[list[Row]]:
    """The rows of each optimizer step; those of one trajectory stay together."""
    parts = [set(ids) for ids in np.array_split(batch.trajectory_ids, count)]
    return [[row for row in batch.rows if row.trajectory in part] for part in parts if part]
