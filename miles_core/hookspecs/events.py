"""Event hooks: what happens in a run, for all who listen.

All are called in the driver's process, one listener after the other in the order of enabling, never two at once
(`@hookimpl(tryfirst=True)` goes before, `trylast=True` after the others). The run waits for each: what takes long
belongs into a thread of the plugin's own. What a listener returns is ignored. One that raises is counted and named,
while the others and the run go on; `--strict-plugins` stops the run instead. A listener may report other events, not
the one that it hears.

`run` is the name of the run's folder. Examples begin with `from miles_core import hookimpl`; what they print goes to
standard error.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from miles_core.hookspecs.marks import hookspec


@hookspec(since="1.0")
def miles_run_started(run: str, folder: Path, recipe: Mapping[str, Any]) -> None:
    """A run begins, or is resumed.

    Called once for each `miles run` and `miles resume`, in the driver, before any worker process is started. `folder`
    is the run's folder, `recipe` the resolved recipe with every default (JSON data). Since 1.0.

        @hookimpl
        def miles_run_started(run, recipe):
            print(f"{run} begins with seed {recipe['seed']}")
    """


@hookspec(since="1.0")
def miles_group_finished(run: str, group: str, task: str, disposition: str, reward: float | None) -> None:
    """A group left the rollout.

    Called once for each group, in the driver: often, so be quick. `disposition` is `buffered` for one that was kept,
    otherwise the reason why not; `reward` is the mean over the trajectories that have one, None when none has.
    `group` and `task` are ids. Since 1.0.

        @hookimpl
        def miles_group_finished(task, disposition):
            if disposition != "buffered":
                print(f"{task} was dropped: {disposition}")
    """


@hookspec(since="1.0")
def miles_step_finished(run: str, step: int, metrics: Mapping[str, float]) -> None:
    """A batch was trained.

    Called once for each step, in the driver, after its evaluations and before its checkpoint. `step` counts from 0;
    `metrics` are those of `metrics.jsonl`. Since 1.0.

        @hookimpl
        def miles_step_finished(step, metrics):
            print(f"step {step}: {metrics['time/step']:.1f} s")
    """


@hookspec(since="1.0")
def miles_weights_published(run: str, version: int, seconds: float) -> None:
    """Every engine reported the version.

    Called once for each publication, in the driver, the first time before any rollout. `version` counts from 1, or from
    where a resumed run goes on; `seconds` is how long the engines took to have it. Since 1.0.

        @hookimpl
        def miles_weights_published(version, seconds):
            print(f"version {version} took {seconds:.2f} s")
    """


@hookspec(since="1.0")
def miles_evaluated(run: str, name: str, step: int, version: int, score: float | None, skipped: str) -> None:
    """An evaluation was filed.

    Called once for each evaluation, in the driver, when it ended: that may be steps after `step`, the number of batches
    trained before what it measured, `version`. `name` is the evaluation's, `<name>/<dataset>` for one of several.
    `score` is the mean over its tasks; None when it was skipped, with the cause in `skipped`. Since 1.0.

        @hookimpl
        def miles_evaluated(name, version, score, skipped):
            print(name, version, skipped if score is None else f"{score:.3f}")
    """


@hookspec(since="1.0")
def miles_checkpoint_saved(run: str, step: int, folder: Path) -> None:
    """A checkpoint is complete on disk.

    Called once for each checkpoint, in the driver. `step` is the number of batches trained before, `folder` the
    checkpoint's own: it stays until newer ones displace it (`checkpoint: {keep: N}`). Since 1.0.

        @hookimpl
        def miles_checkpoint_saved(step, folder):
            size = sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
            print(f"checkpoint {step}: {size:,} bytes")
    """


@hookspec(since="1.0")
def miles_run_finished(run: str, folder: Path, steps: int) -> None:
    """The run ended as its recipe says.

    Called once, in the driver, when every worker process has ended and before the report is written. `folder` is the
    run's folder, `steps` the number of batches of the recipe. Since 1.0.

        @hookimpl
        def miles_run_finished(run, steps):
            print(f"{run} is done after {steps} steps")
    """


@hookspec(since="1.0")
def miles_run_failed(run: str, folder: Path, error: str, interrupted: bool) -> None:
    """The run ended early; what was saved stays.

    Called once instead of `miles_run_finished`, in the driver, when every worker process has ended. `folder` is the
    run's folder, `error` what stopped the run, in words; `interrupted` tells a person's Ctrl-C from a failure.
    Since 1.0.

        @hookimpl
        def miles_run_failed(run, error, interrupted):
            print(f"{run} {'was interrupted' if interrupted else 'failed'}: {error}")
    """
