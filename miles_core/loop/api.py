"""A run as a Python call: `miles_core.run(recipe)`. The command line calls the same functions."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np
import yaml

from miles_core.contracts.component import BuildContext
from miles_core.errors import MilesError, RequestError
from miles_core.host.call_trace import HookTrace
from miles_core.host.damage import explained
from miles_core.host.lock import write_lock
from miles_core.host.registry import Registry
from miles_core.host.request import read_request, recipe_alone
from miles_core.loop.assemble import assemble, rehearse, start_trainer
from miles_core.loop.checkpoint import Checkpoints, Saved, restore
from miles_core.loop.driver import Progress, drive
from miles_core.loop.interruptible import wait_for
from miles_core.loop.plugin_set import continue_with, plugin_set, refuse_drift
from miles_core.loop.record import Recorder, read_evaluations
from miles_core.loop.ring import Ring
from miles_core.loop.summary import comparisons, failing_listeners, listener_uses
from miles_core.loop.trackers import start_trackers
from miles_core.observe import jsonl
from miles_core.observe.folder import RunFolder
from miles_core.observe.live import LiveView
from miles_core.observe.report import write_report
from miles_core.observe.trajectories import discard_from
from miles_core.recipe.plan import load_plan
from miles_core.recipe.resolved import Plan
from miles_core.recipe.yaml_text import dump
from miles_core.runtime.clients import RemoteTrainer

View = Literal["live", "plain", "none"]


@dataclass(frozen=True, slots=True)
class Run:
    """A run that ended. `summary` is JSON data: name, state, steps, folder, report, evaluations (before, after, and
    the paired difference with its 95 % interval), plugins (calls, failures and seconds of the event hooks of each)."""

    folder: RunFolder
    summary: Mapping[str, Any] = field(default_factory=dict)

    @property
    def metrics(self) -> list[dict[str, Any]]:
        """One record for each step."""
        return jsonl.read(self.folder.metrics)


def run(
    recipe: Path | str | Mapping[str, Any],
    *,
    set: Sequence[str] = (),
    name: str | None = None,
    runs_dir: Path = Path("runs"),
    view: View = "live",
    locked: Path | None = None,
    plugins: Sequence[str] = (),
    no_plugins: bool = False,
    strict_plugins: bool = False,
    trace_plugins: Path | None = None,
    **overrides: Any,
) -> Run:
    """Run a recipe to its end and return what became of it.

    `recipe` is a YAML file or the same as a mapping. `set` are overrides as on the command line
    (`schedule.group_size=4`); `overrides` replace whole top-level sections (`steps=3`). `plugins` are as `--plugin` on
    the command line (`["demo", "no:wandb"]`), `no_plugins` as `--no-plugins`; MILES_PLUGINS and the working folder's
    miles.toml count as they do there. `strict_plugins` ends the run when an event hook of a plugin raises, instead of
    counting it; `trace_plugins` is a file that gets a JSON line for each hook call. Raises RequestError before any work
    when the recipe is wrong, PluginError when a plugin is broken or `locked` names another set, and what stopped the
    run otherwise: the folder then holds all that was saved.
    """
    source = Path(recipe) if isinstance(recipe, str) else recipe
    settings = [*set, *(f"{key}={yaml.safe_dump(value, default_flow_style=True)}" for key, value in overrides.items())]
    request = read_request(plugins, no_plugins=no_plugins, environ=os.environ, folder=Path())
    plan, registry = load_plan(source, settings, request)
    enabled = plugin_set(plan, registry)
    if locked is not None:
        refuse_drift(locked, enabled)
    rehearse(plan)
    with _watched(registry, strict_plugins, trace_plugins):
        folder = RunFolder.create(runs_dir, name or plan.name)
        with folder.claimed():
            folder.recipe.write_text(dump(plan.recipe))
            write_lock(folder.lock, enabled)
            return _go(plan, registry, folder, view, saved=None, strict=strict_plugins)


def resume(run: Path, *, view: View = "live", strict_plugins: bool = False) -> Run:
    """Continue a run from its last checkpoint, as if it had never stopped.

    It uses exactly the plugins that the run recorded: neither MILES_PLUGINS nor miles.toml is consulted, and a
    milesfile.py that appeared since is not loaded. Only an allow-list of the machine (MILES_PLUGINS_ALLOWED) holds.
    Raises RequestError when there is nothing to continue or the run is done, PluginError when another plugin set is
    installed than the run recorded.
    """
    folder = RunFolder.open(run)
    with folder.claimed():
        if folder.read_status().get("state") == "done":
            raise RequestError("the run is done: there is nothing to resume", where=str(folder.path))
        plan, registry = load_plan(folder.recipe, (), recipe_alone(os.environ, beside=False))
        continue_with(folder.lock, plugin_set(plan, registry))
        saved = _checkpoints(plan, folder).latest()
        if saved is None:
            raise RequestError(
                "the run has no checkpoint to resume from",
                where=str(folder.path),
                mend="start it again with `miles run`; `checkpoint: {every: N}` saves one every N steps",
            )
        with _watched(registry, strict_plugins):
            return _go(plan, registry, folder, view, saved, strict=strict_plugins)


@contextmanager
def _watched(registry: Registry, strict: bool, trace_file: Path | None = None) -> Iterator[None]:
    """Event hooks as this run wants them."""
    trace = HookTrace(trace_file) if trace_file is not None else None
    registry.watch(strict=strict, trace=trace)
    try:
        yield
    finally:
        registry.watch()
        if trace is not None:
            trace.close()


def export(run: Path, to: Path) -> Path:
    """Write the run's last weights as a Hugging Face directory. Raises RequestError when `to` is not empty or the run
    has no checkpoint."""
    folder = RunFolder.open(run)
    plan, _ = load_plan(folder.recipe, (), recipe_alone(os.environ, beside=False))
    saved = _checkpoints(plan, folder).latest()
    if saved is None:
        raise RequestError("the run has no checkpoint to export", where=str(folder.path))
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise RequestError("the place to export to is not an empty folder", where=str(to), mend="name a new folder")
    draft = to.with_name(f".{to.name}.partial")
    shutil.rmtree(draft, ignore_errors=True)
    try:
        draft.mkdir(parents=True)
        wait_for(_export(plan, folder, saved, draft.resolve()))
        if to.exists():
            to.rmdir()
        draft.rename(to)
    except OSError as error:
        raise RequestError(f"cannot export: {error.strerror or error}", where=str(to)) from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)
    return to


async def _export(plan: Plan, folder: RunFolder, saved: Saved, to: Path) -> None:
    runtime, trainer = await start_trainer(plan, folder.path.resolve())
    try:
        await _load(trainer, saved)
        await trainer.export(to)
    finally:
        await runtime.close()


def _go(plan: Plan, registry: Registry, folder: RunFolder, view: View, saved: Saved | None, *, strict: bool) -> Run:
    """The part that `run` and `resume` share: the ring, from the beginning or from a checkpoint, and how it ended."""
    live = LiveView(plan.name, plan.steps, view=view)
    recorder = _recorder(plan, registry, folder, live, saved)
    done = 0 if saved is None else saved.step
    folder.write_status(state="running", error="", steps_done=done, steps=plan.steps)
    try:
        recorder.follow(start_trackers(plan.trackers, plan.seed, folder.path, plan.recipe, strict=strict))
        wait_for(_run_ring(plan, folder, recorder, saved))
        recorder.emit("run_finished", folder=folder.path, steps=plan.steps)
    except BaseException as error:
        told = explained(error)
        _end_early(told, plan, registry, folder, recorder, live)
        if told is error:
            raise
        raise told from error
    evaluations = comparisons(recorder.evaluations)
    recorder.close_trackers("done")
    told_of = [*listener_uses(registry), *recorder.tracker_uses()]
    folder.write_status(state="done", steps_done=plan.steps, steps=plan.steps, evaluations=evaluations, plugins=told_of)
    live.close()
    recorder.close()
    summary = {
        "name": folder.path.name,
        "state": "done",
        "steps": plan.steps,
        "folder": str(folder.path),
        "report": str(write_report(folder, decode=_decoder(plan))),
        "evaluations": evaluations,
        "plugins": told_of,
    }
    return Run(folder, summary)


def _end_early(
    error: BaseException, plan: Plan, registry: Registry, folder: RunFolder, recorder: Recorder, live: LiveView
) -> None:
    """Put on record that and why the run ended, and tell whoever sees the error what was saved."""
    interrupted = isinstance(error, KeyboardInterrupt)
    state = "interrupted" if interrupted else "failed"
    text = "interrupted" if interrupted else str(error) or type(error).__name__
    live.close()
    error.add_note(f"run folder: {folder.path}; {_what_is_saved(plan, folder)}")
    try:
        recorder.emit("run_failed", folder=folder.path, error=text, interrupted=interrupted)
        recorder.close_trackers(state)
        told_of = [*listener_uses(registry), *recorder.tracker_uses()]
        for line in failing_listeners(told_of):
            error.add_note(line)
        folder.write_status(state=state, error=text, plugins=told_of)
        recorder.close()
        write_report(folder, decode=None)
    except MilesError as second:  # the disk may be what failed; the first error is the one to show
        error.add_note(f"then its record could not be completed: {second}")


async def _run_ring(plan: Plan, folder: RunFolder, recorder: Recorder, saved: Saved | None) -> None:
    recorder.emit("run_started", folder=folder.path, recipe=dict(plan.recipe))
    began = recorder.clock.now()
    with recorder.timed("start"):
        ring = await assemble(plan, folder.path.resolve(), recorder)
    recorder.emit("workers_ready", seconds=recorder.clock.now() - began)
    try:
        progress = await _restore(ring, saved) if saved is not None else Progress()
        await drive(ring, progress, _checkpoints(plan, folder, saved))
    finally:
        await ring.close()


async def _restore(ring: Ring, saved: Saved) -> Progress:
    restore(ring, saved)
    if ring.trainer is not None:
        await _load(ring.trainer, saved)
    return Progress(saved.step, saved.state["weight_version"], resumed=True)


async def _load(trainer: RemoteTrainer, saved: Saved) -> None:
    try:
        await trainer.load(saved.trainer.resolve())
    except MilesError:
        raise
    except Exception as error:
        raise RequestError(
            f"the trainer cannot load the checkpoint: {type(error).__name__}: {error}", where=str(saved.trainer)
        ) from error


def _recorder(plan: Plan, registry: Registry, folder: RunFolder, live: LiveView, saved: Saved | None) -> Recorder:
    """A recorder whose files end where the checkpoint was; a fresh run's are empty."""
    if saved is not None:
        for path, key in ((folder.metrics, "metrics_position"), (folder.events, "events_position")):
            if not path.is_file():
                raise RequestError("is missing, so the run cannot be resumed", where=str(path))
            lines = jsonl.JsonLines(path)
            lines.truncate(saved.state[key])
            lines.close()
        discard_from(folder.trajectories, saved.step)
    evaluations = read_evaluations(jsonl.read(folder.events)) if saved is not None else []
    return Recorder(
        folder,
        run=folder.path.name,
        steps=plan.steps,
        listeners=[live],
        hooks=registry,
        evaluations=evaluations,
    )


def _checkpoints(plan: Plan, folder: RunFolder, saved: Saved | None = None) -> Checkpoints:
    return Checkpoints(
        folder.checkpoints,
        plan.recipe,
        every=plan.checkpoint_every,
        keep=plan.checkpoint_keep,
        saved=None if saved is None else saved.step,
    )


def _decoder(plan: Plan) -> Callable[[int], str] | None:
    """What a token says, for the report. The model's files are there by now."""
    if plan.model is None:
        return None
    spec = plan.model.build(BuildContext(plan.seed, "model"))
    spec.materialise()
    renderer = spec.renderer()

    def decode(token: int) -> str:
        text: str = renderer.decode(np.array([token], np.int32))
        return text

    return decode


def _what_is_saved(plan: Plan, folder: RunFolder) -> str:
    try:
        saved = _checkpoints(plan, folder).latest()
    except MilesError as error:
        return f"its checkpoints cannot be read: {error}"
    if saved is None:
        return "no checkpoint was saved yet"
    return f"checkpoint of step {saved.step} is saved; continue with `miles resume {folder.path}`"
