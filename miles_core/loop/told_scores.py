"""Scores as a program tells them, in JSON. One dataset is one of

    {"scores": {"task-1": 1.0, "task-2": [1, 0, 1]}}       task by task; a list has one number for each attempt
    {"score": 0.71, "n": 1319}                              a mean over n tasks, with `low` and `high`, or `stderr`

and several are `{"datasets": {"aime": {…}, "gsm8k": {…}}}`. `figures` beside either are further numbers by name.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass
from typing import Any

from miles_core.contracts.observing import Evaluation
from miles_core.errors import RunError
from miles_core.observe.statistics import mean_and_interval
from miles_core.types.estimate import Estimate, pass_at_k

Z = 1.959963984540054
"""The 97.5 % quantile of the normal distribution: a standard error that is told comes without degrees of freedom."""

SHOWN = 80


@dataclass(frozen=True, slots=True)
class Reading:
    """How what is told becomes an evaluation. `bounds`: what a score may be."""

    name: str
    version: int
    step: int
    threshold: float = 1.0
    pass_at: tuple[int, ...] = ()
    bounds: tuple[float, float] | None = None

    def read(self, text: str) -> Evaluation:
        """Raises RunError saying what is wrong with the text."""
        told = _json(text)
        if "datasets" not in told:
            return self._one(self.name, told)
        datasets = told["datasets"]
        if not isinstance(datasets, dict) or not datasets:
            raise RunError(f"`datasets` is {_short(datasets)}, expected an object with one key for each dataset")
        parts = tuple(self._one(str(name), _object(one, f"dataset {name!r}")) for name, one in datasets.items())
        return Evaluation(self.name, self.version, self.step, parts=parts)

    def _one(self, name: str, told: Mapping[str, Any]) -> Evaluation:
        figures = {
            str(key): _figure(value, f"figure {key!r}")
            for key, value in _object(told.get("figures", {}), "`figures`").items()
        }
        if "scores" in told:
            return self._by_task(name, _object(told["scores"], "`scores`"), figures)
        if "score" in told:
            total = _estimate(told, f"the score of {name!r}")
            self._check(total.mean, f"the score of {name!r}")
            return Evaluation(name, self.version, self.step, total=total, figures=figures)
        raise RunError(f"{name!r} has neither `scores` nor `score`, only {', '.join(map(repr, told)) or 'nothing'}")

    def _by_task(self, name: str, told: Mapping[str, Any], figures: dict[str, Estimate]) -> Evaluation:
        attempts = {str(task): list(self._attempts(task, value)) for task, value in told.items()}
        if not attempts:
            raise RunError(f"{name!r} has no scores")
        for k in self.pass_at:
            if few := next((task for task, values in attempts.items() if len(values) < k), None):
                raise RunError(f"pass@{k} needs {k} attempts at each task, task {few!r} has {len(attempts[few])}")
            right = ((len(values), sum(v >= self.threshold for v in values)) for values in attempts.values())
            figures[f"pass@{k}"] = mean_and_interval(pass_at_k(n, c, k) for n, c in right)
        scores = {task: sum(values) / len(values) for task, values in attempts.items()}
        return Evaluation(name, self.version, self.step, scores, figures=figures)

    def _attempts(self, task: str, value: Any) -> Iterator[float]:
        values: Several[Any] = value if isinstance(value, list) else [value]
        if not values:
            raise RunError(f"task {task!r} has no attempt")
        for each in values:
            yield self._check(_number(each, f"the score of task {task!r}"), f"the score of task {task!r}")

    def _check(self, value: float, what: str) -> float:
        if not float("-inf") < value < float("inf"):
            raise RunError(f"{what} is {value}")
        if self.bounds and not self.bounds[0] <= value <= self.bounds[1]:
            raise RunError(f"{what} is {value:g}, outside [{self.bounds[0]:g}, {self.bounds[1]:g}]")
        return value


def _json(text: str) -> Mapping[str, Any]:
    """The whole text, or its last line."""
    lines = text.strip().splitlines()
    if not lines:
        raise RunError("it told no scores")
    for candidate in (text, lines[-1]):
        try:
            return _object(json.loads(candidate), "what it told")
        except (ValueError, RecursionError):
            continue
    raise RunError(f"the last line that it told is no JSON: {_short(lines[-1])}")


def _object(value: Any, what: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise RunError(f"{what} is {_short(value)}, expected a JSON object")
    return value


def _number(value: Any, what: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RunError(f"{what} is {_short(value)}, expected a number")
    try:
        return float(value)
    except OverflowError as error:
        raise RunError(f"{what} is too large for a number") from error


def _figure(value: Any, what: str) -> Estimate:
    return _estimate(value, what, "mean") if isinstance(value, dict) else Estimate(_number(value, what), None, None, 0)


def _estimate(told: Mapping[str, Any], what: str, key: str = "score") -> Estimate:
    mean, n = _number(told.get(key), what), told.get("n", 0)
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise RunError(f"`n` beside {what} is {_short(n)}, expected how many tasks there were")
    low, high = told.get("low"), told.get("high")
    if (low is None) != (high is None):
        raise RunError(f"only one of `low` and `high` stands beside {what}")
    if low is not None and high is not None:
        return Estimate(mean, _number(low, f"`low` of {what}"), _number(high, f"`high` of {what}"), n)
    if told.get("stderr") is not None:
        half = Z * _number(told["stderr"], f"`stderr` of {what}")
        return Estimate(mean, mean - half, mean + half, n)
    return Estimate(mean, None, None, n)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
