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
from miles_core.loop.assemble import rehearse, start_trainer
from miles_core.loop.checkpoint import Saved
from miles_core.loop.filing import read_evaluations
from miles_core.loop.interruptible import Interruption, wait_for
from miles_core.loop.order import Order
from miles_core.loop.plugin_set import continue_with, plugin_set, refuse_drift
from miles_core.loop.record import Recorder
from miles_core.loop.recovery import checkpoints_of, load_trainer, run_ring
from miles_core.loop.rewinding import begin_anew, forget_after
from miles_core.loop.summary import comparisons, failing_listeners, listener_uses
from miles_core.loop.supervise import supervise, tell_restarts
from miles_core.loop.trackers import start_trackers
from miles_core.observe import jsonl
from miles_core.observe.faults import count_faults
from miles_core.observe.folder import RunFolder
from miles_core.observe.live import LiveView, Watches
from miles_core.observe.report import write_report
from miles_core.recipe.plan import load_plan
from miles_core.recipe.resolved import Plan
from miles_core.recipe.yaml_text import dump

View = Literal["live", "plain", "none"]


@dataclass(frozen=True, slots=True)
class Run:
    """A run that ended. `summary` is JSON data: name, state, steps, folder, report, evaluations (before, after, and
    the paired difference with its 95 % interval), plugins (calls, failures and seconds of the event hooks of each),
    faults (engines lost and started again, restores; empty without any)."""

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
    hosted = plan.driver == "worker"  # then the hooks of the run are called there
    with _watched(registry, strict_plugins, None if hosted else trace_plugins):
        folder = RunFolder.create(runs_dir, name or plan.name)
        with folder.claimed():
            folder.recipe.write_text(dump(plan.recipe))
            write_lock(folder.lock, enabled)
            if hosted:
                trace = trace_plugins.resolve() if trace_plugins is not None else None
                return _have_driven(plan, registry, folder, view, Order(folder.path, (), strict_plugins, trace))
            return _go(plan, registry, folder, _live(plan, view), saved=None, strict=strict_plugins)


def resume(run: Path, *, view: View = "live", strict_plugins: bool = False) -> Run:
    """Continue a run from its last checkpoint, as if it had never stopped; from its beginning, in the same folder, when
    it has none yet.

    It uses exactly the plugins that the run recorded: neither MILES_PLUGINS nor miles.toml is consulted, and a
    milesfile.py that appeared since is not loaded. Only an allow-list of the machine (MILES_PLUGINS_ALLOWED) holds.
    Raises RequestError when the run is done, PluginError when another plugin set is installed than the run recorded.
    """
    folder = RunFolder.open(run)
    with folder.claimed():
        if folder.read_status().get("state") == "done":
            raise RequestError("the run is done: there is nothing to resume", where=str(folder.path))
        plan, registry = load_plan(folder.recipe, (), recipe_alone(os.environ, beside=False))
        continue_with(folder.lock, plugin_set(plan, registry))
        saved = checkpoints_of(plan, folder).latest()
        with _watched(registry, strict_plugins):
            if plan.driver == "worker":
                return _have_driven(plan, registry, folder, view, Order(folder.path, (), strict_plugins))
            again = saved is None and begin_anew(folder)
            return _go(plan, registry, folder, _live(plan, view), saved, strict=strict_plugins, again=again)


def drive_hosted(folder: RunFolder, order: Order, view: Watches, interruption: Interruption) -> Run:
    """Drive in a worker, for the command that holds the folder: from the latest checkpoint, else from the beginning,
    whatever a driver that died has left. Raises as `run` and `resume` do."""
    with folder.driven():
        plan, registry = load_plan(folder.recipe, (), recipe_alone(os.environ, beside=False))
        continue_with(folder.lock, plugin_set(plan, registry))
        saved = checkpoints_of(plan, folder).latest()
        again = saved is None and begin_anew(folder) and not order.restarts
        with _watched(registry, order.strict, order.trace):
            return _go(
                *(plan, registry, folder, view, saved),
                strict=order.strict,
                again=again,
                order=order,
                interruption=interruption,
            )


def _have_driven(plan: Plan, registry: Registry, folder: RunFolder, view: View, order: Order) -> Run:
    """The command's part where the driver lives in a worker."""
    folder.write_status(state="running", error="")
    live = _live(plan, view)
    try:
        summary = wait_for(supervise(plan, folder, live, order)).result()
    except BaseException as error:
        if folder.read_status()["state"] != "running":
            raise  # the driver has put it on record
        told = explained(error)
        _end_early(told, plan, registry, folder, _recorder(plan, registry, folder, live, None), live)
        if told is error:
            raise
        raise told from error
    finally:
        live.close()
    return Run(folder, {**summary, "folder": str(folder.path), "report": str(folder.report)})


def _live(plan: Plan, view: View) -> LiveView:
    return LiveView(plan.name, plan.steps, view=view)


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
    saved = checkpoints_of(plan, folder).latest()
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
        await load_trainer(trainer, saved)
        await trainer.export(to)
    finally:
        await runtime.close()


def _go(
    plan: Plan,
    registry: Registry,
    folder: RunFolder,
    live: Watches,
    saved: Saved | None,
    *,
    strict: bool,
    again: bool = False,
    order: Order | None = None,
    interruption: Interruption | None = None,
) -> Run:
    """The part that `run` and `resume` share: the ring, from the beginning or from a checkpoint, and how it ended.
    `again`: what was begun without a checkpoint is made again. `order` is that of a driver in a worker, and
    `interruption` what ends it."""
    recorder = _recorder(plan, registry, folder, live, saved)
    done = 0 if saved is None else saved.step
    folder.write_status(state="running", error="", steps_done=done, steps=plan.steps)
    try:
        if order is not None:
            tell_restarts(recorder, order, done)
        if again:
            recorder.note("no checkpoint was saved: the run begins again from its beginning")
        recorder.follow(start_trackers(plan.trackers, plan.seed, folder.path, plan.recipe, strict=strict))
        wait_for(run_ring(plan, folder, recorder, saved), interruption)
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
    facts = {"evaluations": evaluations, "plugins": told_of, "faults": count_faults(jsonl.read(folder.events))}
    folder.write_status(state="done", steps_done=plan.steps, steps=plan.steps, **facts)
    live.close()
    recorder.close()
    summary = {
        "name": folder.path.name,
        "state": "done",
        "steps": plan.steps,
        "folder": str(folder.path),
        "report": str(write_report(folder, decode=_decoder(plan))),
        **facts,
    }
    return Run(folder, summary)


def _end_early(
    error: BaseException, plan: Plan, registry: Registry, folder: RunFolder, recorder: Recorder, live: Watches
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
        faults = count_faults(jsonl.read(folder.events))
        folder.write_status(state=state, error=text, plugins=told_of, faults=faults)
        recorder.close()
        write_report(folder, decode=None)
    except MilesError as second:  # the disk may be what failed; the first error is the one to show
        error.add_note(f"then its record could not be completed: {second}")


def _recorder(plan: Plan, registry: Registry, folder: RunFolder, live: Watches, saved: Saved | None) -> Recorder:
    """A recorder whose files end where the checkpoint was; a fresh run's are empty."""
    if saved is not None:
        forget_after(folder, saved)
    evaluations = read_evaluations(jsonl.read(folder.events)) if saved is not None else []
    return Recorder(
        folder,
        run=folder.path.name,
        steps=plan.steps,
        listeners=[live],
        hooks=registry,
        evaluations=evaluations,
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
        saved = checkpoints_of(plan, folder).latest()
    except MilesError as error:
        return f"its checkpoints cannot be read: {error}"
    if saved is None:
        return f"no checkpoint was saved yet; begin again with `miles resume {folder.path}`"
    return f"checkpoint of step {saved.step} is saved; continue with `miles resume {folder.path}`"
