"""`miles runs list`, `show` and `export`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from miles_core.cli.output import say, say_json, table
from miles_core.observe.faults import in_words
from miles_core.observe.folder import RunFolder
from miles_core.observe.runs import find_run, list_runs


def list_all(runs_dir: Path, *, as_json: bool) -> int:
    found = list_runs(runs_dir)
    if as_json:
        say_json([{"run": run.path.name, "folder": str(run.path), **status} for run, status in found])
    elif found:
        rows = [
            (run.path.name, str(status["state"]), _steps(status), str(status.get("started", "")), _scores(status))
            for run, status in found
        ]
        table(("run", "state", "steps", "started", "evaluations"), rows)
    else:
        say(f"no runs in {runs_dir}")
    return 0


def show_run(name: str, runs_dir: Path, *, as_json: bool) -> int:
    run = find_run(runs_dir, name)
    status = {"evaluations": _evaluations(run), **run.read_status()}
    if as_json:
        report = str(run.report) if run.report.exists() else None
        say_json({"run": run.path.name, "folder": str(run.path), "report": report, **status})
        return 0
    say(f"run      {run.path.name}")
    say(f"state    {status['state']}, {_steps(status)} steps, started {status.get('started')}")
    if status.get("error"):
        say(f"error    {status['error']}")
    if faults := in_words(status.get("faults", {})):
        say(f"faults   {faults}")
    for evaluation, facts in status.get("evaluations", {}).items():
        from miles_core.cli.work import evaluation_line, missing_lines

        for line in (evaluation_line(evaluation, facts), *missing_lines(facts)):
            say(line)
    for metric, value in status.get("last_metrics", {}).items():
        say(f"  {metric:32} {value:.6g}")
    say(f"folder   {run.path}")
    if run.report.exists():
        say(f"report   {run.report}")
    return 0


def _evaluations(run: RunFolder) -> dict[str, Any]:
    """Of a run that is not done, which has no summary of them yet, from its events."""
    from miles_core.loop.filing import read_evaluations
    from miles_core.loop.summary import comparisons
    from miles_core.observe import jsonl

    return comparisons(read_evaluations(jsonl.read(run.events))) if run.events.exists() else {}


def export_run(name: str, to: Path, runs_dir: Path, *, as_json: bool) -> int:
    from miles_core.loop import api

    written = api.export(find_run(runs_dir, name).path, to)
    if as_json:
        say_json({"exported": str(written)})
    else:
        say(f"exported to {written}")
    return 0


def _steps(status: Mapping[str, Any]) -> str:
    return f"{status.get('steps_done', 0)}/{status.get('steps', '?')}"


def _scores(status: Mapping[str, Any]) -> str:
    facts = status.get("evaluations", {})
    return ", ".join(
        f"{name} {one['before']:.3f} -> {one['after']:.3f}" for name, one in facts.items() if "after" in one
    )
