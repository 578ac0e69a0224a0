"""What a run is judged by: each evaluation before and after, with the paired interval; and what listeners cost it."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Several
from typing import Any

from miles_core.contracts.observing import Evaluation
from miles_core.host.registry import Registry
from miles_core.loop.filing import estimate_of
from miles_core.observe.statistics import paired_difference


def comparisons(evaluations: Several[Evaluation]) -> dict[str, dict[str, Any]]:
    """For every evaluation name: first and last scores and their difference with its 95 % interval, paired where both
    have scores of the same tasks; and each missing point with its reason (JSON data)."""
    return {name: _comparison([e for e in evaluations if e.name == name]) for name in _names(evaluations)}


def _names(evaluations: Several[Evaluation]) -> list[str]:
    return list(dict.fromkeys(each.name for each in evaluations))


def _comparison(mine: list[Evaluation]) -> dict[str, Any]:
    missing = [{"step": e.step, "version": e.version, "why": e.skipped} for e in mine if e.skipped]
    scored = sorted((e for e in mine if not e.skipped), key=lambda each: (each.version, each.step))
    if not scored:
        return {"skipped": len(mine), "why": mine[-1].skipped, "missing": missing}
    first, last = scored[0], scored[-1]
    return {
        **(_paired(first, last) if first.scores.keys() & last.scores.keys() else _apart(first, last)),
        "first_version": first.version,
        "last_version": last.version,
        "skipped": len(missing),
        "missing": missing,
    }


def _paired(first: Evaluation, last: Evaluation) -> dict[str, Any]:
    compared = paired_difference(first.scores, last.scores)
    return {
        "before": compared.before_mean,
        "after": compared.after_mean,
        "difference": compared.mean,
        "low": compared.low,
        "high": compared.high,
        "n": compared.n,
    }


def _apart(first: Evaluation, last: Evaluation) -> dict[str, Any]:
    """Scores without common tasks, such as totals: nobody knows the noise of their difference."""
    before, after = estimate_of(first), estimate_of(last)
    if before is None or after is None:
        raise AssertionError("both have scores")
    difference = after.mean - before.mean
    return {
        "before": before.mean,
        "after": after.mean,
        "difference": difference,
        "low": None,
        "high": None,
        "n": after.n,
    }


def listener_uses(registry: Registry) -> list[dict[str, Any]]:
    """Calls, failures and seconds of each plugin's event hooks in this process, with the last error (JSON data)."""
    return [use.to_json() for use in registry.summary()]


def failing_listeners(uses: Several[Mapping[str, Any]]) -> list[str]:
    """A sentence for each plugin whose event hooks, and each tracker of which calls, failed."""
    return [f"{_title(use)} failed, the last with {use['last_error']}" for use in uses if use["failures"]]


def _title(use: Mapping[str, Any]) -> str:
    owner = " ".join(filter(None, (use["distribution"], use["version"]))) or "research code"
    calls = f"{use['failures']} of {use['calls']} calls"
    if use["name"].startswith("tracker "):
        return f"{use['name']} ({owner}): {calls}"
    return f"plugin {use['name']} ({owner}): {calls} of its event hooks"
