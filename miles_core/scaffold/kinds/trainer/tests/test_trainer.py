"""Learning, the gradient, and going on from a checkpoint."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from miles_core import (
    Batch,
    BuildContext,
    ComponentRef,
    LossInputs,
    ModelCard,
    ModelFiles,
    RequestError,
    Row,
    TokenTerms,
)
from miles_core.testing import make_batch, make_group
from numpy.typing import NDArray

from miles_plugin_xyz.options import XyzOptions
from miles_plugin_xyz.trainer import XyzTrainer, parts_of


class PolicyGradient:
    """-advantage x log-prob, every token alike."""

    needs_rollout_logprobs = False
    needs_reference = False

    def __init__(self, options: object, context: BuildContext) -> None:
        pass

    def weights(self, rows: Sequence[Row]) -> list[NDArray[np.float32]]:
        return [np.full(len(row.sequence), 1 / len(rows), np.float32) for row in rows]

    def per_token(self, inputs: LossInputs[NDArray[Any]]) -> TokenTerms[NDArray[Any]]:
        return TokenTerms(-inputs.advantages * inputs.logprobs * inputs.correction)


LOSS = ComponentRef("loss", "test", f"{__name__}:PolicyGradient", "miles_core:NoOptions", {}, "", "")


def made(vocabulary: int = 128, **options: Any) -> XyzTrainer:
    card = ModelCard("tiny", "Logits", 64, vocabulary, hidden=1, layers=0, parameters=vocabulary, stop_tokens=(0,))
    context = BuildContext(seed=1, name="trainer", model=ModelFiles(Path(), card))
    chosen = XyzOptions(**{"learning_rate": 1.0, **options})
    trainer = XyzTrainer(chosen, context)
    trainer.begin_phase({"loss": LOSS})
    return trainer


def batch() -> Batch:
    """`a` was right and `b` was wrong."""
    return make_batch([make_group(["a", "b"], [1.0, -1.0])])


def test_what_was_rewarded_becomes_likelier() -> None:
    trainer, rows = made(), batch().rows
    before = trainer.score([row.sequence for row in rows])
    report = trainer.step(batch())
    after = trainer.score([row.sequence for row in rows])
    good, bad = (float((a - b)[row.sequence.sampled][0]) for a, b, row in zip(after, before, rows, strict=True))
    assert good > 0 > bad
    assert report.metrics["trainer/grad_norm"] > 0


def test_the_gradient_is_that_of_the_loss() -> None:
    """Against the loss itself at slightly other weights."""
    trainer = made(learning_rate=1e-6)
    before = np.zeros(128)
    trainer.step(batch())
    moved = trainer._weights - before

    def loss(weights: NDArray[Any]) -> float:
        trainer._weights = weights
        return sum(
            float(np.sum(-row.advantages[row.sequence.sampled] * logprobs[row.sequence.sampled])) / 2
            for row, logprobs in zip(batch().rows, trainer.score([r.sequence for r in batch().rows]), strict=True)
        )

    for token in (ord("a"), ord("b"), ord("c")):
        nudge = np.zeros(128)
        nudge[token] = 1e-2
        slope = (loss(nudge) - loss(-nudge)) / 2e-2
        assert -moved[token] / 1e-6 == pytest.approx(slope, abs=1e-4)


def test_a_checkpoint_goes_on_exactly(tmp_path: Path) -> None:
    first, second = made(momentum=0.9), made(momentum=0.9)
    first.step(batch())
    first.save(tmp_path)
    second.load(tmp_path)
    first.step(batch())
    second.step(batch())
    np.testing.assert_array_equal(first._weights, second._weights)
    with pytest.raises(RequestError, match="another size"):
        made(vocabulary=64).load(tmp_path)


def test_a_trajectory_is_never_split() -> None:
    rows = make_batch([make_group(["a", "b", "c", "d"])])
    assert [[row.trajectory for row in part] for part in parts_of(rows, 2)] == [["g0/0", "g0/1"], ["g0/2", "g0/3"]]
