"""Evaluating a checkpoint of a run: its recipe's evaluators, on processes of their own, beside the run's record."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from miles_core.contracts.observing import Evaluation
from miles_core.errors import RequestError
from miles_core.host.request import recipe_alone
from miles_core.loop.assemble import assemble, rehearse
from miles_core.loop.checkpoint import Saved
from miles_core.loop.due import Progress
from miles_core.loop.evaluating import Evaluations
from miles_core.loop.filing import estimate_of
from miles_core.loop.interruptible import wait_for
from miles_core.loop.plugin_set import continue_with, plugin_set
from miles_core.loop.record import Recorder
from miles_core.loop.recovery import checkpoints_of, load_trainer
from miles_core.observe.folder import RunFolder
from miles_core.observe.live import LiveView, View
from miles_core.recipe.plan import load_plan
from miles_core.recipe.resolved import Plan


def evaluate(run: Path, *, step: int | None = None, set: Sequence[str] = (), view: View = "live") -> dict[str, Any]:
    """Measure a run's last checkpoint, or that of `step`, with the evaluators of its recipe; `set` are overrides of the
    recipe, such as `evaluate[0].tasks=500`. A recipe of several phases is evaluated as its last one that evaluates.

    Returns JSON data: run, step, version, folder, and of each evaluation name, score, low and high (95 %), n, figures,
    or why it is missing. What was sampled lies in `folder`; the run's own record stays as it is. Raises RequestError
    when there is no such checkpoint or nothing to evaluate, PluginError when another plugin set is installed.
    """
    folder = RunFolder.open(run)
    request = recipe_alone(os.environ, beside=False)
    own, _ = load_plan(folder.recipe, (), request)
    plan, registry = load_plan(folder.recipe, set, request)
    continue_with(folder.lock, plugin_set(plan, registry))
    checkpoints = checkpoints_of(own, folder)
    saved = checkpoints.latest() if step is None else checkpoints.at(step)
    if saved is None:
        raise RequestError("the run has no checkpoint to evaluate", where=str(folder.path))
    if not any(phase.evaluators for phase in plan.phases):
        raise RequestError(
            "the recipe has no evaluation", where=str(folder.recipe), mend="add one with --set evaluate=…"
        )
    rehearse(plan)
    place = _place(folder, saved.step)
    live = LiveView(plan.name, 0, view=view)
    recorder = Recorder(place, run=folder.path.name, steps=0, listeners=[live])
    try:
        wait_for(_measure(plan, recorder, saved))
    finally:
        live.close()
        recorder.close()
    found = [_told(each) for each in recorder.evaluations]
    facts = {"run": folder.path.name, "step": saved.step, "version": saved.state["weight_version"]}
    return {**facts, "folder": str(place.path), "evaluations": found}


async def _measure(plan: Plan, recorder: Recorder, saved: Saved) -> None:
    ring = await assemble(plan, recorder.folder.path.resolve(), recorder)
    progress = Progress(saved.step, saved.state["weight_version"])
    try:
        if ring.trainer is not None:
            await load_trainer(ring.trainer, saved)
        await ring.publish(progress.version)
        phase = [phase for phase in ring.phases if phase.evaluators][-1]
        evaluations = Evaluations(ring, progress)
        try:
            await evaluations.begin(phase, last=True, all_of_them=True)
            await evaluations.finish()
        finally:
            await evaluations.close()
    finally:
        await ring.close()


def _place(folder: RunFolder, step: int) -> RunFolder:
    """`evaluations/step-000012-20260101-120000/` of the run, with what the measuring leaves."""
    name = f"step-{step:06d}-{datetime.now(UTC):%Y%m%d-%H%M%S-%f}"
    place = RunFolder.at(folder.path / "evaluations" / name)
    for part in (place.trajectories, place.logs):
        part.mkdir(parents=True)
    return place


def _told(evaluation: Evaluation) -> Mapping[str, Any]:
    estimate = estimate_of(evaluation)
    if estimate is None:
        return {"name": evaluation.name, "score": None, "missing": evaluation.skipped}
    numbers = {"score": estimate.mean, "low": estimate.low, "high": estimate.high, "n": estimate.n}
    figures = {
        name: {"mean": each.mean, "low": each.low, "high": each.high, "n": each.n}
        for name, each in evaluation.figures.items()
    }
    return {"name": evaluation.name, **numbers, "figures": figures}
