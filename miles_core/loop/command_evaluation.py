"""The `command` evaluator: any program that scores a Hugging Face directory.

    evaluate: [{use: command, every: 50, run: [python, my_benchmark.py, "{weights}"]}]

It finds the directory in MILES_WEIGHTS, and beside it MILES_VERSION, MILES_STEP (batches trained), MILES_EVALUATION
(the name); the same stand for `{weights}`, `{version}`, `{step}` and `{name}` in its arguments. It writes JSON into the
file MILES_SCORES, or prints it, alone or as the last line (`told_scores` says what). The directory is gone after it.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from miles_core.contracts.component import BuildContext
from miles_core.contracts.observing import Evaluation, EvaluationContext
from miles_core.contracts.options import EvaluatorOptions
from miles_core.contracts.rollout import Data
from miles_core.errors import RequestError, RunError
from miles_core.loop.program import run_program
from miles_core.loop.told_scores import Reading
from miles_core.types.task import Task


class CommandEvaluatorOptions(EvaluatorOptions):
    """Which program, and what its scores may be."""

    name: str = Field(
        default="command", pattern=r"^[^/\s][^/]*$", description="the evaluation's name in metrics and reports"
    )
    run: tuple[str, ...] = Field(min_length=1, description="the program and its arguments; `python` is this Python")
    folder: Path | None = Field(default=None, description="working directory of the program; absent: that of the run")
    environment: Mapping[str, str] = Field(default_factory=dict, description="more variables")
    queue: NonNegativeInt = Field(
        default=1, description="evaluations that may wait for an earlier one, with their weights; others are skipped"
    )
    bounds: tuple[float, float] | None = Field(
        default=None, description="lowest and highest score; one outside makes the whole evaluation worthless"
    )
    threshold: float = Field(default=1.0, description="score from which an attempt is right, for pass@k")
    pass_at: tuple[PositiveInt, ...] = Field(
        default=(), description="report pass@k for these k, of programs that give one score for each attempt"
    )

    @model_validator(mode="after")
    def _bounds_in_order(self) -> Self:
        if self.bounds and not self.bounds[0] < self.bounds[1]:
            raise ValueError(f"bounds are {list(self.bounds)}, expected the lower one first")
        return self

    def card(self) -> Mapping[str, str]:
        return {"measures": f"what `{' '.join(self.run)}` tells of an exported Hugging Face directory"}


class CommandEvaluator:
    """See `contracts.observing.Evaluator`. The process leads a group, and the whole group is ended with it."""

    def __init__(self, options: CommandEvaluatorOptions, context: BuildContext) -> None:
        """Raises RequestError when there is no such program or folder."""
        first, *others = options.run
        found = sys.executable if first in ("python", "python3") else shutil.which(first)
        if found is None:
            raise RequestError(
                f"there is no program {first!r}", where="evaluate.run", mend="install it, or give its path"
            )
        if options.folder is not None and not options.folder.is_dir():
            raise RequestError(f"there is no folder {options.folder}", where="evaluate.folder")
        self._options = options
        self._program = (found, *others)

    @property
    def name(self) -> str:
        return self._options.name

    def due(self, step: int, last: bool) -> bool:
        return self._options.is_due(step, last)

    def tasks(self, data: Data) -> list[Task]:
        """None of the run's: the program brings its own."""
        return []

    async def evaluate(self, step: int, version: int, context: EvaluationContext) -> Evaluation:
        """Raises RunError for another exit code than 0, with the last lines of the program's errors, and for scores
        that cannot be read."""
        if context.weights is None:
            raise RunError("there are no exported weights to measure")
        options = self._options
        facts = {"weights": str(context.weights), "version": str(version), "step": str(step), "name": self.name}
        with TemporaryDirectory(prefix="miles-evaluation-") as scratch:
            place = Path(scratch)
            scores = place / "scores.json"
            told = {f"MILES_{'EVALUATION' if name == 'name' else name.upper()}": value for name, value in facts.items()}
            environment = {**told, "MILES_SCORES": str(scores), **options.environment}
            program = [self._program[0], *(_filled(part, facts) for part in self._program[1:])]
            ended = await run_program(program, place, environment=environment, folder=options.folder)
            if ended.code != 0:
                raise RunError(ended.why())
            text = scores.read_text(errors="replace") if scores.exists() else ended.said
        reading = Reading(self.name, version, step, options.threshold, options.pass_at, options.bounds)
        return reading.read(text)


def _filled(part: str, facts: Mapping[str, str]) -> str:
    """An argument with its `{weights}` and the like replaced; other braces stay."""
    for name, value in facts.items():
        part = part.replace(f"{{{name}}}", value)
    return part
