"""`miles eval`: measure a checkpoint, and print scores with their intervals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from miles_core.cli.output import say, say_json
from miles_core.errors import EXIT_DONE, EXIT_FAILED
from miles_core.loop.evaluate import evaluate
from miles_core.observe.live import View
from miles_core.observe.runs import find_run


def evaluate_run(
    run: str, runs_dir: Path, *, step: int | None, settings: Sequence[str], view: View, as_json: bool
) -> int:
    """1 when a score is missing."""
    told = evaluate(find_run(runs_dir, run).path, step=step, set=settings, view=view)
    if as_json:
        say_json(told)
    else:
        say(f"{told['run']}, step {told['step']}, weight version {told['version']}")
        for each in told["evaluations"]:
            say(_line(each))
        say(f"folder  {told['folder']}")
    return EXIT_FAILED if any(each["score"] is None for each in told["evaluations"]) else EXIT_DONE


def _line(facts: Mapping[str, Any]) -> str:
    if facts["score"] is None:
        return f"evaluation {facts['name']}: no score: {facts['missing']}"
    tasks = f", {facts['n']} tasks" if facts["n"] else ""
    figures = "".join(f"; {name} {_number(each, 'mean')}" for name, each in facts["figures"].items())
    return f"evaluation {facts['name']}: {_number(facts, 'score')} (95 %{tasks}){figures}"


def _number(facts: Mapping[str, Any], key: str) -> str:
    interval = "" if facts["low"] is None else f" [{facts['low']:.3f}, {facts['high']:.3f}]"
    return f"{facts[key]:.3f}{interval}"
