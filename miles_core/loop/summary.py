"""What a run is judged by: each evaluation before and after, with the paired interval; and what listeners cost it."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Several
from typing import Any

from miles_core.contracts.observing import Evaluation
from miles_core.host.registry import Registry
from miles_core.observe.statistics import paired_difference


def comparisons(evaluations: Several[Evaluation]) -> dict[str, dict[str, Any]]:
    """For every evaluation name: first and last scores and their paired difference with its 95 % interval (JSON data).

    Evaluations that were skipped are left out; `skipped` counts them.
    """
    found: dict[str, dict[str, Any]] = {}
    for name in dict.fromkeys(e.name for e in evaluations):
        mine = [e for e in evaluations if e.name == name]
        scored = [e for e in mine if e.scores]
        if not scored:
            found[name] = {"skipped": len(mine), "why": mine[-1].skipped}
            continue
        first, last = scored[0], scored[-1]
        compared = paired_difference(first.scores, last.scores)
        found[name] = {
            "before": compared.before_mean,
            "after": compared.after_mean,
            "difference": compared.mean,
            "low": compared.low,
            "high": compared.high,
            "n": compared.n,
            "first_version": first.version,
            "last_version": last.version,
            "skipped": len(mine) - len(scored),
        }
    return found


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
