"""Speeds of a real run, from its metrics and trajectories, for `miles simulate --like RUN`."""

from __future__ import annotations

import itertools
import statistics
from collections import defaultdict
from collections.abc import Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from miles_core.errors import RequestError
from miles_core.observe import jsonl
from miles_core.observe.folder import RunFolder
from miles_core.observe.runs import find_run
from miles_core.observe.trajectories import files
from miles_core.simulate.decoding import LOWEST, decoding, weights
from miles_core.simulate.recorded import read_run_file, rows_of_run
from miles_core.types.trajectory import Disposition

_PARTS = ("time/rollout", "time/train", "time/publish")
_KNOWN = (*_PARTS, "time/evaluate", "time/checkpoint")


def measure(name: str, runs_dir: Path) -> dict[str, float]:
    """Values of `Service` that the run tells. Raises RequestError when there is no such run, or when it has too few
    steps that tell enough."""
    try:
        folder = find_run(runs_dir, name)
    except RequestError as error:
        raise RequestError(error.problems[0].what, where=f"--like {name}", mend="see `miles runs list`") from error
    steps = _usable(jsonl.read(folder.metrics))
    left = _left(folder)
    steps = [step for step in steps if step["step"] in left]
    if len(steps) < 2:
        raise RequestError(
            "has fewer than 2 steps that tell how long rollout, training and publication took",
            where=f"--like {name}",
            mend="choose a longer run, one with an engine and a trainer",
        )
    lengths = {step: each.lengths for step, each in left.items()}
    return {**_training(steps, left), **decoding(steps, lengths, *_recipe(folder))}


def _usable(records: Several[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Steps with all that is needed. The first holds starting up; one after an evaluation holds the evaluation's
    attempts too."""
    needed = {*_PARTS, "time/in_flight", "time/engine_idle", "time/step", "rollout/tokens"}
    return [
        now for before, now in itertools.pairwise(records) if needed <= now.keys() and "time/evaluate" not in before
    ]


@dataclass(slots=True)
class _Left:
    """What left the ring in a step: sampled tokens of each trajectory, trained or not; tokens that were trained."""

    lengths: list[int] = field(default_factory=list)
    trained: int = 0


def _left(folder: RunFolder) -> dict[int, _Left]:
    found: dict[int, _Left] = defaultdict(_Left)
    for path, step in files(folder.trajectories):
        for _, work, disposition in rows_of_run(path.name, read_run_file(path)):
            left = found[-1 if step is None else step]
            left.lengths.append(work.tokens)
            left.trained += (work.prompt + work.tokens) * (disposition == Disposition.TRAINED.value)
    return found


def _recipe(folder: RunFolder) -> tuple[int, str]:
    """Engines, and the name of the last phase's schedule."""
    data = yaml.safe_load(folder.recipe.read_text(encoding="utf-8"))
    sections = [data, *data.get("phases", ())]
    schedule = [each["schedule"] for each in sections if "schedule" in each][-1]
    return data["engine"].get("replicas", 1), schedule["use"].rpartition(":")[2]


def _training(steps: Several[Mapping[str, Any]], left: Mapping[int, _Left]) -> dict[str, float]:
    """Training by the tokens of a batch; recording is what of a step is nothing else."""
    tokens = np.array([left[step["step"]].trained for step in steps], float)
    whole, each = weights(np.ones(len(steps)), tokens, np.array([step["time/train"] for step in steps]))
    others = [step["time/step"] - sum(step.get(part, 0.0) for part in _KNOWN) for step in steps]
    return {
        "train_seconds": whole,
        "train_tokens_per_second": 1 / max(each, LOWEST),
        "publish_seconds": statistics.fmean(step["time/publish"] for step in steps),
        "record_seconds": max(0.0, statistics.fmean(others)),
    }
