"""Evaluations in a report: each point at the version that it measured, each missing one with its reason."""

from __future__ import annotations

from typing import Any

from miles_core.observe.evaluation_figures import evaluation_figures, evaluations_of


def event(version: int, score: float | None, **facts: Any) -> dict[str, Any]:
    told = {"event": "evaluated", "name": "aime", "step": version - 1, "version": version, "score": score}
    return {**told, "skipped": "", "low": None, "high": None, "n": 30, **facts}


EVENTS = [
    event(1, 0.25, low=0.2, high=0.3, figures={"pass@4": {"mean": 0.5, "low": 0.4, "high": 0.6, "n": 30}}),
    event(7, 0.75, low=0.7, high=0.8, lag_steps=0, lag_seconds=3.0),
    event(3, 0.5, low=0.4, high=0.6, lag_steps=5, lag_seconds=61.0),  # ended after a later one
    event(5, None, skipped="another evaluation is under way (queue: <1>)"),
]


def test_points_stand_in_the_order_of_versions_whenever_they_ended():
    assert [point["version"] for point in evaluations_of(EVENTS)["aime"]] == [1, 3, 7]


def test_curve_and_table_say_version_interval_lag_and_reason():
    page = evaluation_figures(EVENTS)
    assert "aime, version 3: 0.5 [0.4, 0.6]" in page
    assert "aime pass@4, version 1: 0.5 [0.4, 0.6]" in page
    assert "4 evaluations, 1 of them without a score" in page
    assert "another evaluation is under way (queue: &lt;1&gt;)" in page
    assert "61.0 s, 5 steps" in page


def test_a_run_without_evaluations_has_none():
    assert evaluation_figures([]) == ""


def test_events_of_earlier_versions_are_read():
    old = {"event": "evaluated", "name": "old", "step": 0, "version": 1, "score": 0.5, "skipped": "", "scores": {}}
    page = evaluation_figures([{**old, "scores": {"a": 0.0, "b": 1.0, "c": 0.5}}])
    assert "old, version 1: 0.5 [" in page
