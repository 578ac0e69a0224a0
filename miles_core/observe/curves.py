"""Which curves a run's report shows, and from which metrics (docs/metrics.md)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from miles_core.observe.charts import Curve, line_chart, share_chart
from miles_core.observe.evaluation_figures import evaluation_figures
from miles_core.observe.session_figures import session_figures
from miles_core.observe.standing import TIMES

Record = Mapping[str, Any]


def charts(metrics: Sequence[Record], events: Sequence[Record]) -> str:
    """Every figure that has data, as HTML."""
    return "".join(
        [
            line_chart("Reward", "mean of a batch, one standard deviation around it", [_reward(metrics)]),
            evaluation_figures(events),
            line_chart("Loss", "of the batch", [_curve(metrics, "loss/total", "loss")]),
            line_chart(
                "Mismatch", "engine against trainer: mean |r − 1|", [_curve(metrics, "correction/mismatch", "mismatch")]
            ),
            line_chart(
                "Length",
                "sampled tokens of a trajectory",
                [_curve(metrics, "rollout/length_mean", "mean"), _curve(metrics, "rollout/length_max", "longest", 3)],
            ),
            line_chart(
                "Length of what was thrown away as too old",
                "sampled tokens of a trajectory, mean and nine tenths",
                [
                    _curve(metrics, "buffer/length_kept_mean", "kept"),
                    _curve(metrics, "buffer/length_stale_mean", "stale", 2),
                    _curve(metrics, "buffer/length_kept_p90", "kept, p90", 3),
                    _curve(metrics, "buffer/length_stale_p90", "stale, p90", 4),
                ]
                if any("buffer/length_stale_mean" in record for record in metrics)
                else [],
            ),
            line_chart(
                "Idle",
                "share of time: the trainer, and the engines' slots",
                [_curve(metrics, "time/trainer_idle", "trainer"), _curve(metrics, "time/engine_idle", "engines", 2)],
            ),
            line_chart(
                "Staleness",
                "weight versions by which taken groups were behind",
                [
                    _curve(metrics, "buffer/staleness_mean", "mean"),
                    _curve(metrics, "buffer/staleness_max", "oldest", 3),
                ]
                if any(record.get("buffer/staleness_max") for record in metrics)
                else [],
            ),
            line_chart("Gradient norm", "before clipping", [_curve(metrics, "trainer/grad_norm", "norm")]),
            *(line_chart(*figure) for figure in session_figures(metrics)),
            line_chart("Speed", "tokens a second", [_curve(metrics, "time/tokens_per_second", "tokens/s", 2)]),
            share_chart("Time", "seconds of a step", _times(metrics), unit=" s"),
        ]
    )


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


def _times(metrics: Sequence[Record]) -> list[Curve]:
    return [
        Curve(part, tuple((_x(record), float(record.get(f"time/{part}", 0.0))) for record in metrics), colour=index + 1)
        for index, part in enumerate(TIMES)
    ]
