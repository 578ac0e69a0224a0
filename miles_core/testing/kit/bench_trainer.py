"""A trainer on the bench: built with a plain policy-gradient loss, given batches, asked for log-probs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Several
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from miles_core import __version__
from miles_core.contracts.component import BuildContext, ComponentRef
from miles_core.contracts.learning import LossInputs, TokenTerms
from miles_core.contracts.model import ModelFiles
from miles_core.contracts.options import NoOptions
from miles_core.testing.fakes.makers import make_batch, make_group, make_sequence
from miles_core.testing.kit.bench_model import BenchModel, bench_model, parts_of_a_run, sender
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.types.batch import Batch, Row
from miles_core.types.sequence import Array, FloatArray, Sequence

HERE, OPTIONS = "miles_core.testing.kit.bench_trainer", "miles_core.contracts.options:NoOptions"


class PolicyGradient:
    """-advantage x log-prob, averaged over the sampled tokens of the step; in numpy, torch or anything that has *."""

    needs_rollout_logprobs = False
    needs_reference = False

    def __init__(self, options: NoOptions, context: BuildContext) -> None:
        pass

    def weights(self, rows: Several[Row]) -> list[FloatArray]:
        total = max(1, sum(row.sequence.sampled_count for row in rows))
        return [row.sequence.sampled.astype(np.float32) / np.float32(total) for row in rows]

    def per_token(self, inputs: LossInputs[Any]) -> TokenTerms[Any]:
        return TokenTerms(-inputs.advantages * inputs.logprobs)


class NotANumber(PolicyGradient):
    """The same, but NaN (0 / 0) for tokens whose advantage is 0."""

    def per_token(self, inputs: LossInputs[Any]) -> TokenTerms[Any]:
        with np.errstate(invalid="ignore"):
            return TokenTerms(-inputs.advantages * inputs.logprobs * (inputs.advantages / inputs.advantages))


@dataclass(frozen=True, slots=True)
class TrainerBench:
    """Builds trainers of one model. `one` is a first one, ready for a batch."""

    subject: ComponentSubject
    model: BenchModel
    one: Any

    def parts(self) -> dict[str, ComponentRef]:
        return {"loss": loss_ref(PolicyGradient), **parts_of_a_run(self.subject)}

    def build(self, *, files: ModelFiles | None = None) -> Any:
        """A fresh trainer, with its first phase begun."""
        parts = self.parts()
        trainer = self.subject.build(model=files or self.model.files, parts=parts)
        trainer.begin_phase(parts)
        return trainer

    def sent(self, trainer: Any, version: int) -> list[tuple[Any, bytes]]:
        """What a version brings to engines: infos and bytes, copied before the release."""
        delivery = trainer.send(version)
        try:
            return [(wire.info, wire.data.tobytes()) for wire in sender(self.subject).receive(delivery)]
        finally:
            trainer.release(version)


@contextmanager
def trainer_bench(subject: ComponentSubject) -> Iterator[TrainerBench]:
    """A bench with its first trainer, which is closed at the end."""
    model = bench_model(subject)
    bench = TrainerBench(subject, model, None)
    one = bench.build()
    try:
        yield TrainerBench(subject, model, one)
    finally:
        one.close()


def loss_ref(loss: type) -> ComponentRef:
    return ComponentRef("loss", loss.__name__, f"{HERE}:{loss.__name__}", OPTIONS, {}, "miles-core", __version__)


def lines() -> list[Sequence]:
    """Sequences of all sorts: short, of two turns, a demonstration, at another temperature, greedy."""
    return [
        make_sequence("2+2=", "4"),
        make_sequence("3+3=", ["six", "or 6"]),
        make_sequence("5+5=", "10", demonstration=True),
        make_sequence("2+2=", "four", temperature=0.5),
        make_sequence("7+1=", "8", temperature=0.0),
    ]


def batch_of(advantages: Mapping[str, float] | float = 1.0, *, step: int = 0) -> Batch:
    """Two trajectories of one task, `g0/0` and `g0/1`."""
    return make_batch([make_group(["3", "no idea"])], advantages, step=step)


def total_logprob(trainer: Any, batch: Batch) -> dict[str, float]:
    """The summed log-prob of each trajectory's sampled tokens."""
    scores = trainer.score([row.sequence for row in batch.rows])
    return {row.trajectory: float(score.sum()) for row, score in zip(batch.rows, scores, strict=True)}


def same_scores(first: Several[Array], second: Several[Array]) -> bool:
    """Equal to the last bit."""
    return len(first) == len(second) and all(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
