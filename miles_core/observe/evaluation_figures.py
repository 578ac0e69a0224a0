"""Evaluations in a report: each score at the weight version that it measured, and each missing one with its reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Any

from miles_core.observe.charts import Curve, line_chart
from miles_core.observe.statistics import mean_and_interval

Record = Mapping[str, Any]

_PALETTE = 5
PASS = "pass@"
"""The figures of an evaluation that are drawn beside its score."""


def evaluations_of(events: Sequence[Record]) -> dict[str, list[Record]]:
    """The `evaluated` events by name, without those that were skipped, in the order of what they measured: an
    evaluation may end after a later one."""
    found: dict[str, list[Record]] = {}
    for event in events:
        if event.get("event") == "evaluated" and event.get("score") is not None:
            found.setdefault(str(event["name"]), []).append(event)
    return {name: sorted(each, key=lambda event: (event["version"], event["step"])) for name, each in found.items()}


def evaluation_figures(events: Sequence[Record]) -> str:
    """The curves and the table, as HTML; nothing without evaluations."""
    note = "by the weight version that was measured, with the 95 % interval of the mean"
    return line_chart("Evaluation", note, _curves(events)) + _table(events)


def _curves(events: Sequence[Record]) -> list[Curve]:
    curves: list[Curve] = []
    for name, records in evaluations_of(events).items():
        curves.append(_curve(name, [(record, *_score(record)) for record in records], len(curves)))
        told = dict.fromkeys(key for each in records for key in each.get("figures", {}) if key.startswith(PASS))
        for figure in told:
            having = [
                (each, *_figure(each["figures"][figure])) for each in records if figure in each.get("figures", {})
            ]
            curves.append(_curve(f"{name} {figure}", having, len(curves)))
    return curves


def _curve(label: str, points: Sequence[tuple[Record, float, float, float]], place: int) -> Curve:
    drawn = tuple((float(record["version"]), mean) for record, mean, _, _ in points)
    ends = tuple((low, high) for _, _, low, high in points)
    return Curve(label, drawn, ends, bars=True, colour=place % _PALETTE + 1, along="version")


def _score(record: Record) -> tuple[float, float, float]:
    """Mean, low and high; low and high are the mean where nobody knows them."""
    facts = {"mean": record["score"], "low": record.get("low"), "high": record.get("high")}
    scores = record.get("scores") or {}
    if facts["low"] is None and scores:
        estimate = mean_and_interval(scores.values())
        facts = {"mean": record["score"], "low": estimate.low, "high": estimate.high}
    return _figure(facts)


def _figure(facts: Record) -> tuple[float, float, float]:
    mean = float(facts["mean"])
    if facts["low"] is None or facts["high"] is None:
        return mean, mean, mean
    return mean, float(facts["low"]), float(facts["high"])


def _table(events: Sequence[Record]) -> str:
    """Every point; open where one is missing."""
    points = [event for event in events if event.get("event") == "evaluated"]
    if not points:
        return ""
    points.sort(key=lambda event: (str(event["name"]), event["version"], event["step"]))
    missing = sum(event.get("score") is None for event in points)
    title = f"{len(points)} evaluations" + (f", {missing} of them without a score" if missing else "")
    names = ("evaluation", "version", "step", "score", "95 %", "tasks", "filed after", "why it is missing")
    head = "".join(f"<th>{name}</th>" for name in names)
    rows = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _cells(event))}</tr>" for event in points)
    state = " open" if missing else ""
    return (
        f'<figure style="grid-column: 1 / -1"><details class="fold"{state}><summary>{escape(title)}</summary>'
        f'<div class="scroll"><table><tr>{head}</tr>{rows}</table></div></details></figure>'
    )


def _cells(event: Record) -> Iterator[str]:
    yield from (str(event["name"]), str(event["version"]), str(event["step"]))
    if event.get("score") is None:
        yield from ("", "", "", "", str(event.get("skipped", "")))
        return
    yield f"{event['score']:.3f}"
    _, low, high = _score(event)
    yield f"[{low:.3f}, {high:.3f}]" if low < high else ""
    yield str(event.get("n") or len(event.get("scores", {})) or "")
    steps, seconds = event.get("lag_steps", 0), event.get("lag_seconds")
    yield "" if seconds is None else f"{seconds:.1f} s" + (f", {steps} steps" if steps else "")
    yield ""
