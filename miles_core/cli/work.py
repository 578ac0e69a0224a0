"""`miles run` and `miles resume`: call the loop, then say what came of it."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from miles_core.cli.output import remark, say, say_json
from miles_core.loop import api
from miles_core.loop.summary import failing_listeners
from miles_core.observe.faults import in_words
from miles_core.observe.live import View
from miles_core.observe.runs import find_run
from miles_core.recipe.catalog import find_recipe


def view_of(quiet: bool, plain: bool) -> View:
    if quiet:
        return "none"
    return "plain" if plain else "live"


def run_recipe(
    recipe: str,
    settings: Sequence[str],
    *,
    name: str | None,
    runs_dir: Path,
    locked: Path | None,
    view: View,
    as_json: bool,
    plugins: Sequence[str] = (),
    no_plugins: bool = False,
    strict_plugins: bool = False,
    trace_plugins: Path | None = None,
) -> int:
    path = find_recipe(recipe)
    finished = api.run(
        path,
        set=settings,
        name=name,
        runs_dir=runs_dir,
        view=view,
        locked=locked,
        plugins=plugins,
        no_plugins=no_plugins,
        strict_plugins=strict_plugins,
        trace_plugins=trace_plugins,
    )
    return _say_summary(finished.summary, as_json)


def resume_run(run: str, *, runs_dir: Path, view: View, as_json: bool, strict_plugins: bool = False) -> int:
    finished = api.resume(find_run(runs_dir, run).path, view=view, strict_plugins=strict_plugins)
    return _say_summary(finished.summary, as_json)


def evaluation_line(name: str, facts: Mapping[str, Any]) -> str:
    """One evaluation, before and after, with the 95 % interval of the difference, paired by task where it is known."""
    if "before" not in facts:
        return f"evaluation {name}: skipped {facts.get('skipped')} times: {facts.get('why')}"
    tasks = f"{facts['n']} tasks" if facts["n"] else "tasks not counted"
    if facts["first_version"] == facts["last_version"]:
        return f"evaluation {name}: {facts['before']:.3f} ({tasks})"
    known = facts["low"] is not None
    interval = f" [{facts['low']:+.3f}, {facts['high']:+.3f}]" if known else ""
    how = f"paired, 95 %, {tasks}" if known or facts["n"] == 1 else f"{tasks}, its noise is not known"
    skipped = f"; {facts['skipped']} skipped" if facts.get("skipped") else ""
    return (
        f"evaluation {name}: before {facts['before']:.3f}, after {facts['after']:.3f}, "
        f"difference {facts['difference']:+.3f}{interval} ({how}{skipped})"
    )


def missing_lines(facts: Mapping[str, Any]) -> list[str]:
    """Each point that an evaluation lacks, with its reason; equal reasons in a row together."""
    lines: list[str] = []
    for why, points in itertools.groupby(facts.get("missing", ()), key=lambda point: point["why"]):
        versions = [str(point["version"]) for point in points]
        lines.append(f"  no score of version{'s' if len(versions) > 1 else ''} {', '.join(versions)}: {why}")
    return lines


def _say_summary(summary: Mapping[str, Any], as_json: bool) -> int:
    for line in failing_listeners(summary["plugins"]):
        remark(line)
    if as_json:
        say_json(summary)
        return 0
    for name, facts in summary["evaluations"].items():
        say(evaluation_line(name, facts))
        for line in missing_lines(facts) if "before" in facts else ():
            say(line)
    if faults := in_words(summary.get("faults", {})):
        say(f"faults  {faults}")
    say(f"run     {summary['folder']}")
    say(f"report  {summary['report']}")
    if summary["state"] != "done":
        remark(f"the run is {summary['state']}")
    return 0
