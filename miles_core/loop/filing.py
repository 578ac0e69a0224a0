"""An evaluation as a record: what the events file and the metrics say of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from miles_core.contracts.observing import Evaluation
from miles_core.observe import jsonl
from miles_core.observe.statistics import mean_and_interval
from miles_core.types.estimate import Estimate


@dataclass(frozen=True, slots=True)
class Lag:
    """How far training was when a score was filed: versions and steps since the one that it measured, seconds since
    it was due, and seconds that measuring took."""

    versions: int = 0
    steps: int = 0
    seconds: float = 0.0
    took: float = 0.0


def in_parts(evaluation: Evaluation) -> Iterator[Evaluation]:
    """What is filed: each part under `<name>/<part>`; the whole when it has no parts or numbers of its own."""
    if not evaluation.parts or evaluation.scores or evaluation.total or evaluation.skipped:
        yield replace(evaluation, parts=())
    for part in evaluation.parts:
        yield replace(part, name=f"{evaluation.name}/{part.name}", parts=())


def estimate_of(evaluation: Evaluation) -> Estimate | None:
    """The score with its interval; None when it was skipped."""
    if evaluation.skipped:
        return None
    return mean_and_interval(evaluation.scores.values()) if evaluation.scores else evaluation.total


def hook_facts(evaluation: Evaluation) -> dict[str, Any]:
    """What the event hook is told."""
    estimate = estimate_of(evaluation)
    return {
        "name": evaluation.name,
        "step": evaluation.step,
        "version": evaluation.version,
        "score": None if estimate is None else estimate.mean,
        "skipped": evaluation.skipped,
    }


def more_facts(evaluation: Evaluation, lag: Lag) -> dict[str, Any]:
    """What the events file has beside it."""
    estimate = estimate_of(evaluation)
    return {
        "low": None if estimate is None else estimate.low,
        "high": None if estimate is None else estimate.high,
        "n": None if estimate is None else estimate.n,
        "figures": {name: _json(figure) for name, figure in evaluation.figures.items()},
        "lag_versions": lag.versions,
        "lag_steps": lag.steps,
        "lag_seconds": round(lag.seconds, 3),
        "seconds": round(lag.took, 3),
    }


def metrics_of(evaluation: Evaluation, lag: Lag) -> dict[str, float]:
    """Its numbers in the record of a step (docs/metrics.md)."""
    prefix = f"evaluation/{evaluation.name}"
    estimate = estimate_of(evaluation)
    if estimate is None:
        return {f"{prefix}/missing": 1.0}
    return {
        f"{prefix}/score": estimate.mean,
        **{f"{prefix}/{name}": figure.mean for name, figure in evaluation.figures.items()},
        f"{prefix}/version": float(evaluation.version),
        f"{prefix}/lag_versions": float(lag.versions),
        f"{prefix}/lag_steps": float(lag.steps),
    }


def ended_since(events: Path, begun: set[tuple[str, int]]) -> list[dict[str, Any]]:
    """The events of evaluations (name and step in `begun`) that ended after a checkpoint in which they were under way:
    what they measured is from before it, so that they need not be made again."""
    return [
        event
        for event in jsonl.read(events)
        if event["event"] == "evaluated" and (event["name"].partition("/")[0], event["step"]) in begun
    ]


def read_evaluations(events: Several[Mapping[str, Any]]) -> list[Evaluation]:
    """The evaluations that an events file tells of."""
    return [evaluation_of(event) for event in events if event["event"] == "evaluated"]


def evaluation_of(event: Mapping[str, Any]) -> Evaluation:
    """One `evaluated` event, read back."""
    scores, skipped, score = event.get("scores", {}), event.get("skipped", ""), event.get("score")
    total = None
    if score is not None and not scores:
        total = Estimate(score, event.get("low"), event.get("high"), event.get("n") or 0)
    figures = {name: Estimate(**figure) for name, figure in event.get("figures", {}).items()}
    return Evaluation(event["name"], event["version"], event["step"], scores, skipped, total, figures)


def _json(figure: Estimate) -> dict[str, Any]:
    return {"mean": figure.mean, "low": figure.low, "high": figure.high, "n": figure.n}
