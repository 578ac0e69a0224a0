"""The trainer `torch`: packed sequences through one model, AdamW, in one process."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Several
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from miles_core import (
    Batch,
    BuildContext,
    ComponentRef,
    Correction,
    Delivery,
    Loss,
    Precision,
    RequestError,
    RunError,
    Sequence,
    StepReport,
    TrainerFacts,
    Transport,
)
from miles_plugin_torch.loading import DTYPES, load_model
from miles_plugin_torch.trainer.checkpointing import Tensors, export_model, load_trainer, save_trainer
from miles_plugin_torch.trainer.gradient import Lesson, accumulate, prepare
from miles_plugin_torch.trainer.memory import return_freed_memory
from miles_plugin_torch.trainer.metrics import Averages
from miles_plugin_torch.trainer.minibatches import minibatches
from miles_plugin_torch.trainer.optimizing import Optimizer
from miles_plugin_torch.trainer.options import TorchTrainerOptions
from miles_plugin_torch.trainer.packing import FloatArray
from miles_plugin_torch.trainer.policy import Policy
from miles_plugin_torch.trainer.rows import pack_row, prompt_key
from miles_plugin_torch.trainer.scoring import score_rows
from miles_plugin_torch.trainer.trainable import select_trainable
from miles_plugin_torch.trainer.wire import tensor_infos, wire_tensors
from miles_plugin_torch.vision import Vision


class TorchTrainer:
    """Keeps `miles_core.Trainer`. The same inputs give bitwise the same result on the same device and threads.

    Weights are kept in float32. The reference, for a loss that needs one, is a copy of the trained weights at the
    start of the first phase whose loss asks for it; checkpoints keep it.
    """

    def __init__(self, options: TorchTrainerOptions, context: BuildContext) -> None:
        if context.model is None:
            raise RequestError("the torch trainer needs a model", mend="give the recipe a `model:`")
        if options.threads is not None:
            torch.set_num_threads(options.threads)
        self._options = options
        self._context = context
        self._files = context.model
        self._dtype = DTYPES[options.dtype]
        self._model = load_model(context.model, device=options.device)
        self._trained = select_trainable(self._model, options)
        self._policy = Policy(
            self._model,
            dtype=self._dtype,
            logit_tokens=options.logit_tokens,
            recompute=options.gradient_checkpointing,
        )
        self._optimizer = Optimizer(self._trained, options)
        self._transport: Transport | None = context.part("transport") if "transport" in context.parts else None
        self._precision: Precision | None = context.part("precision") if "precision" in context.parts else None
        self._loss: Loss[torch.Tensor] | None = None
        self._correction: Correction[torch.Tensor] | None = None
        self._reference: Tensors | None = None
        self._unusable = ""
        self.begin_phase(context.parts)

    def begin_phase(self, parts: Mapping[str, ComponentRef]) -> None:
        """Build loss and correction anew; see `miles_core.Trainer`."""
        context = replace(self._context, parts=parts)
        self._loss = context.part("loss") if "loss" in parts else None
        self._correction = context.part("correction") if "correction" in parts else None

    def facts(self) -> TrainerFacts:
        return TrainerFacts(
            parameters=sum(parameter.numel() for parameter in self._model.parameters()),
            trainable=sum(parameter.numel() for parameter in self._trained.values()),
            tensors=tensor_infos(self._model, self._precision),
            shared_prefix=self._options.share_prefix,
            device=str(self._model.device),
            images=self._policy.vision is not None,
        )

    def score(self, sequences: Several[Sequence]) -> list[FloatArray]:
        """See `miles_core.Trainer`. Sequences with the same prompt share it."""
        self._require_usable()
        vision = self._seeing(sequences)
        packed = [pack_row(index, line, index, prompt_key(line), vision) for index, line in enumerate(sequences)]
        return score_rows(
            self._policy,
            [row for row in packed if row is not None],
            [len(line) for line in sequences],
            self._options.micro_tokens,
            self._options.share_prefix,
        )

    def step(self, batch: Batch) -> StepReport:
        """See `miles_core.Trainer`. Metrics (means over the batch's computed tokens unless the name says otherwise):

        loss/total                       the summed loss, averaged over optimizer steps; loss/<name> as the loss says
        correction/<name>                as the correction says, and always, where rollout log-probs exist:
        correction/ratio_mean, /ratio_max, /mismatch     r before clamping, and mean |r - 1|
        trainer/grad_norm                before clipping, averaged over optimizer steps
        trainer/learning_rate            of the last optimizer step
        trainer/tokens                   sampled tokens learned from
        trainer/computed_tokens          tokens that went through the model with a gradient
        trainer/shared_tokens_saved      tokens that did not, because a prefix was shared
        trainer/skipped_rows             rows whose weights are all 0
        trainer/micro_batches, trainer/optimizer_steps   counts
        """
        self._require_usable()
        if self._loss is None:
            raise RunError("the trainer was given no loss", mend="give the recipe a `loss:`")
        before = self._optimizer.steps
        try:
            report = self._learn(batch, self._loss)
        except BaseException as error:
            self._optimizer.drop_gradients()
            if self._optimizer.steps != before:
                self._unusable = f"step {batch.step} failed after an optimizer step of it: {error}"
            if isinstance(error, RunError):
                raise RunError([replace(p, where=p.where or f"step {batch.step}") for p in error.problems]) from error
            raise
        return_freed_memory()
        return report

    def _learn(self, batch: Batch, loss: Loss[torch.Tensor]) -> StepReport:
        parts = minibatches(batch.rows, self._options.optimizer_steps)
        vision = self._seeing([row.sequence for row in batch.rows])
        lessons = [prepare(rows, loss, vision) for rows in parts]
        if loss.needs_reference:
            self._score_reference(lessons)
        # The first lesson's old log-probs are those of its own forward pass: nothing has changed yet.
        for lesson in lessons[1:]:
            lesson.old = self._score_lesson(lesson)
        averages = Averages()
        totals: dict[str, float] = {}
        norms = []
        for lesson in lessons:
            sums = accumulate(self._policy, lesson, loss, self._correction, self._options, averages)
            taken = self._optimizer.step()
            norms.append(taken["trainer/grad_norm"])
            totals = {name: totals.get(name, 0.0) + value for name, value in sums.items()}
        return StepReport(
            {
                **averages.values(),
                "loss/total": totals["loss"] / len(lessons),
                "trainer/grad_norm": float(np.mean(norms)),
                "trainer/learning_rate": taken["trainer/learning_rate"],
                "trainer/tokens": totals["tokens"],
                "trainer/computed_tokens": totals["computed"],
                "trainer/shared_tokens_saved": totals["saved"],
                "trainer/skipped_rows": float(len(batch.rows) - sum(len(lesson.packed) for lesson in lessons)),
                "trainer/micro_batches": totals["micro_batches"],
                "trainer/optimizer_steps": float(len(lessons)),
            }
        )

    def send(self, version: int) -> Delivery:
        self._require_usable()
        return self._sending().send(version, wire_tensors(self._model, self._precision))

    def release(self, version: int) -> None:
        self._sending().release(version)

    def save(self, folder: Path) -> None:
        self._require_usable()
        save_trainer(folder, self._model, self._optimizer, self._reference)

    def load(self, folder: Path) -> None:
        self._reference = load_trainer(folder, self._model, self._optimizer)
        self._unusable = ""

    def export(self, folder: Path) -> None:
        self._require_usable()
        export_model(folder, self._model, self._files.path)

    def close(self) -> None:
        self._optimizer.drop_gradients()

    def _score_lesson(self, lesson: Lesson) -> list[FloatArray]:
        lengths = [len(row.sequence) for row in lesson.rows]
        return score_rows(self._policy, lesson.packed, lengths, self._options.micro_tokens, self._options.share_prefix)

    def _score_reference(self, lessons: list[Lesson]) -> None:
        """Score with the reference weights in the place of the trained ones (swapped by pointer, not copied)."""
        if self._reference is None:
            self._reference = {name: parameter.detach().clone() for name, parameter in self._trained.items()}
        current = {name: parameter.data for name, parameter in self._trained.items()}
        try:
            for name, parameter in self._trained.items():
                parameter.data = self._reference[name]
            for lesson in lessons:
                lesson.reference = self._score_lesson(lesson)
        finally:
            for name, parameter in self._trained.items():
                parameter.data = current[name]

    def _seeing(self, sequences: Several[Sequence]) -> Vision | None:
        """The model's vision, with nothing left of earlier images. Raises RequestError for images where it has none."""
        if self._policy.vision is None and any(line.images for line in sequences):
            raise RequestError(f"there are sequences with images, and {type(self._model).__name__} takes none")
        if self._policy.vision is not None:
            self._policy.vision.forget()
            self._policy.vision.check(span for line in sequences for span in line.images)
        return self._policy.vision

    def _sending(self) -> Transport:
        if self._transport is None:
            raise RunError("the trainer was given no transport", mend="give the recipe a `transport:`")
        return self._transport

    def _require_usable(self) -> None:
        if self._unusable:
            raise RunError(f"the weights are in the middle of a step: {self._unusable}", mend="load a checkpoint")
