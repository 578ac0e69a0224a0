"""A trainer of the toy model: plain gradient descent, with any loss and correction that compute with numpy."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Several
from pathlib import Path

import numpy as np
from pydantic import Field

from miles_core.contracts.component import BuildContext, ComponentRef
from miles_core.contracts.options import TrainerOptions
from miles_core.contracts.trainer import StepReport, TrainerFacts
from miles_core.contracts.transport import Delivery, TensorInfo, WireTensor
from miles_core.errors import RunError
from miles_core.testing.fakes.char_renderer import VOCABULARY
from miles_core.testing.toy.model import TENSOR
from miles_core.testing.toy.objective import Objective
from miles_core.types.batch import Batch
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
        self._precision = context.part("precision") if "precision" in context.parts else None
        self._info = TensorInfo(TENSOR, (VOCABULARY,), "float32")
        self._objective: Objective | None = None

    def facts(self) -> TrainerFacts:
        sent = (self._info,) if self._precision is None else tuple(self._precision.layout(self._info))
        return TrainerFacts(parameters=VOCABULARY, trainable=VOCABULARY, tensors=sent, images=True)

    def begin_phase(self, parts: Mapping[str, ComponentRef]) -> None:
        correction = parts["correction"].build(self._context) if "correction" in parts else None
        self._objective = Objective(parts["loss"].build(self._context), correction)

    def score(self, sequences: Several[Sequence]) -> list[FloatArray]:
        return [values.astype(np.float32) for values in self._score(sequences)]

    def step(self, batch: Batch) -> StepReport:
        if self._objective is None:
            raise RunError("begin_phase was not called")
        lines = [row.sequence for row in batch.rows]
        pull, metrics = self._objective.gradient(batch.rows, self._score(lines))
        temperatures = np.concatenate([_temperatures(line)[line.sampled] for line in lines])
        tokens = np.concatenate([line.tokens[line.sampled] for line in lines])
        # d log p[token] / d logits = (onehot(token) - p) / temperature
        pull = pull / temperatures
        gradient = -pull @ np.exp(self._distributions(temperatures))
        np.add.at(gradient, tokens, pull)
        norm = float(np.linalg.norm(gradient))
        if not np.isfinite(norm):
            raise RunError(f"the gradient of step {batch.step} is not finite")
        self._logits = self._logits - self._options.learning_rate * gradient
        return StepReport({**metrics, "trainer/grad_norm": norm})

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

    def _score(self, sequences: Several[Sequence]) -> list[Array]:
        """float64 [n], 0 where nothing was sampled."""
        every = [self._distributions(_temperatures(line))[np.arange(len(line)), line.tokens] for line in sequences]
        return [np.where(line.sampled, logprobs, 0.0) for line, logprobs in zip(sequences, every, strict=True)]

    def _distributions(self, temperatures: Array) -> Array:
        """Log-probs [n, vocabulary] at each temperature [n]."""
        scaled = self._logits / temperatures[:, None]
        found: Array = scaled - np.logaddexp.reduce(scaled, axis=-1, keepdims=True)
        return found

    def _tensors(self) -> Iterator[WireTensor]:
        data = self._logits.astype(np.float32)
        tensor = WireTensor(self._info, data.view(np.uint8))
        yield from self._precision.encode(tensor) if self._precision is not None else (tensor,)


def _temperatures(line: Sequence) -> Array:
    """float64 [n]: that of each token's span, 1 where there is none or decoding was greedy."""
    found: Array = np.ones(len(line))
    for span in line.spans:
        found[span.start : span.stop] = span.temperature or 1.0
    return found
