"""Which curves a run's report shows, and from which metrics (docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from miles_core.observe.charts import Curve, line_chart, share_chart
from miles_core.observe.session_figures import session_figures
from miles_core.observe.standing import TIMES
from miles_core.observe.statistics import mean_and_interval

Record = Mapping[str, Any]

_PALETTE = 5


def charts(metrics: Sequence[Record], events: Sequence[Record]) -> str:
    """Every figure that has data, as HTML."""
    return "".join(
        [
            line_chart("Reward", "mean of a batch, one standard deviation around it", [_reward(metrics)]),
            line_chart("Evaluation", "held-out tasks, with the 95 % interval of the mean", _evaluations(events)),
            line_chart("Loss", "of the batch", [_curve(metrics, "loss/total", "loss")]),
            line_chart(
                "Mismatch", "engine against trainer: mean |r − 1|", [_curve(metrics, "correction/mismatch", "mismatch")]
            ),
            line_chart(
                "Length",
                "sampled tokens of a trajectory",
                [_curve(metrics, "rollout/length_mean", "mean"), _curve(metrics, "rollout/length_max", "longest", 3)],
            ),
            line_chart("Gradient norm", "before clipping", [_curve(metrics, "trainer/grad_norm", "norm")]),
            *(line_chart(*figure) for figure in session_figures(metrics)),
            line_chart("Speed", "tokens a second", [_curve(metrics, "time/tokens_per_second", "tokens/s", 2)]),
            share_chart("Time", "seconds of a step", _times(metrics), unit=" s"),
        ]
    )


def evaluations_of(events: Sequence[Record]) -> dict[str, list[Record]]:
    """The `evaluated` events by name, in order, without those that were skipped."""
    found: dict[str, list[Record]] = {}
    for event in events:
        if event.get("event") == "evaluated" and event.get("score") is not None:
            found.setdefault(str(event["name"]), []).append(event)
    return found


def _x(record: Record) -> float:
    """A step's number counts from 0; curves stand at the number of batches trained, so that evaluations fit in."""
    return float(record["step"]) + 1


def _curve(metrics: Sequence[Record], key: str, label: str, colour: int = 1) -> Curve:
    return Curve(label, tuple((_x(record), float(record[key])) for record in metrics if key in record), colour=colour)


def _reward(metrics: Sequence[Record]) -> Curve:
    curve = _curve(metrics, "reward/mean", "reward", 2)
    spreads = [float(record.get("reward/std", 0.0)) for record in metrics if "reward/mean" in record]
    ends = tuple((mean - std, mean + std) for (_, mean), std in zip(curve.points, spreads, strict=True))
    return Curve(curve.label, curve.points, ends, colour=curve.colour)


def _evaluations(events: Sequence[Record]) -> list[Curve]:
    curves = []
    for index, (name, records) in enumerate(evaluations_of(events).items()):
        points = tuple((float(record["step"]), float(record["score"])) for record in records)
        ends = tuple(_interval(record) for record in records)
        curves.append(Curve(name, points, ends, bars=True, colour=index % _PALETTE + 1))
    return curves


def _interval(record: Record) -> tuple[float, float]:
    score = float(record["score"])
    scores = record.get("scores") or {}
    estimate = mean_and_interval(scores.values()) if scores else None
    if estimate is None or estimate.low is None or estimate.high is None:
        return score, score
    return estimate.low, estimate.high


def _times(metrics: Sequence[Record]) -> list[Curve]:
    return [
        Curve(part, tuple((_x(record), float(record.get(f"time/{part}", 0.0))) for record in metrics), colour=index + 1)
        for index, part in enumerate(TIMES)
    ]
