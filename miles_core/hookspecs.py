"""Every hook that a plugin may implement, on one page.

A plugin's entry point (group `miles.plugins`) names a module or an object whose functions are marked with
`@miles_core.hookimpl`. There are two sorts of hooks:

- *registration hooks*, one for each kind of component: called once, at activation; return `Component`s, which name
  factory and options as strings, so that registering imports nothing heavy;
- *event hooks*: called by the driver when something happened; what they return is ignored.

Hot paths never call hooks. An implementation may leave out arguments that it does not need.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pluggy

from miles_core.contracts.component import Component
from miles_core.contracts.hook_api import HOOK_API_VERSION as HOOK_API_VERSION

hookspec = pluggy.HookspecMarker("miles")
hookimpl = pluggy.HookimplMarker("miles")

HOOK_OF_KIND = {
    "agent": "miles_agents",
    "generator": "miles_generators",
    "rollout": "miles_rollouts",
    "data": "miles_data",
    "reward": "miles_rewards",
    "filter": "miles_filters",
    "buffer": "miles_buffers",
    "staleness": "miles_staleness",
    "schedule": "miles_schedules",
    "advantage": "miles_advantages",
    "correction": "miles_corrections",
    "loss": "miles_losses",
    "model": "miles_model_specs",
    "renderer": "miles_renderers",
    "matcher": "miles_matchers",
    "engine": "miles_engines",
    "trainer": "miles_trainers",
    "transport": "miles_transports",
    "precision": "miles_precisions",
    "evaluator": "miles_evaluators",
    "tracker": "miles_trackers",
    "runtime": "miles_runtimes",
    "recipe": "miles_recipes",
    "middleware": "miles_middleware",
}


# Registration


@hookspec
def miles_agents() -> Iterable[Component]:
    """Agents: run an environment against a chat endpoint.

    Kind `agent`; what the factory makes keeps `contracts.rollout.Agent`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_generators() -> Iterable[Component]:
    """Generators: make one trajectory with the engine client.

    Kind `generator`; what the factory makes keeps `contracts.rollout.Generator`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_rollouts() -> Iterable[Component]:
    """Rollouts: own the whole rollout phase.

    Kind `rollout`; what the factory makes keeps `contracts.rollout.Rollout`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_data() -> Iterable[Component]:
    """Data sources: tasks with resumable state.

    Kind `data`; what the factory makes keeps `contracts.rollout.Data`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_rewards() -> Iterable[Component]:
    """Rewards: score a finished group.

    Kind `reward`; what the factory makes keeps `contracts.rollout.Reward`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_filters() -> Iterable[Component]:
    """Filters: keep or drop a scored group, with a reason.

    Kind `filter`; what the factory makes keeps `contracts.rollout.Filter`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_buffers() -> Iterable[Component]:
    """Buffers: hold finished groups between rollout and trainer.

    Kind `buffer`; what the factory makes keeps `contracts.rollout.Buffer`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_staleness() -> Iterable[Component]:
    """Staleness policies: say which waiting groups are too old.

    Kind `staleness`; what the factory makes keeps `contracts.rollout.Staleness`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_schedules() -> Iterable[Component]:
    """Schedules: say when groups start and when weights are published.

    Kind `schedule`; what the factory makes keeps `contracts.rollout.Schedule`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_advantages() -> Iterable[Component]:
    """Advantage estimators: group scores to advantages of tokens (numpy, in the driver).

    Kind `advantage`; what the factory makes keeps `contracts.learning.Advantage`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_corrections() -> Iterable[Component]:
    """Importance corrections of the mismatch between engine and trainer.

    Kind `correction`; what the factory makes keeps `contracts.learning.Correction`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_losses() -> Iterable[Component]:
    """Losses: one number for each sampled token, and how tokens are weighted.

    Kind `loss`; what the factory makes keeps `contracts.learning.Loss`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_model_specs() -> Iterable[Component]:
    """Model specs: weights, tokenizer, card and renderer of a model family.

    Kind `model`; what the factory makes keeps `contracts.model.ModelSpec`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_renderers() -> Iterable[Component]:
    """Renderers: messages to tokens and back, apart from a model spec.

    Kind `renderer`; what the factory makes keeps `contracts.model.Renderer`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_matchers() -> Iterable[Component]:
    """Matchers: decide whether a replayed message is the stored one.

    Kind `matcher`; what the factory makes keeps `contracts.rollout.Matcher`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_engines() -> Iterable[Component]:
    """Engines: token ids in; sampled ids, log-probs and version spans out.

    Kind `engine`; what the factory makes keeps `contracts.engine.Engine`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_trainers() -> Iterable[Component]:
    """Trainers: score sequences, take optimizer steps, hand out weights.

    Kind `trainer`; what the factory makes keeps `contracts.trainer.Trainer`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_transports() -> Iterable[Component]:
    """Transports: bring a version of the weights to every engine.

    Kind `transport`; what the factory makes keeps `contracts.transport.Transport`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_precisions() -> Iterable[Component]:
    """Precisions: one quantizer for four stages.

    Kind `precision`; what the factory makes keeps `contracts.transport.Precision`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_evaluators() -> Iterable[Component]:
    """Evaluators: measure a weight version.

    Kind `evaluator`; what the factory makes keeps `contracts.observing.Evaluator`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_trackers() -> Iterable[Component]:
    """Trackers: where metrics go beside the run's folder.

    Kind `tracker`; what the factory makes keeps `contracts.observing.Tracker`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_runtimes() -> Iterable[Component]:
    """Runtimes: where processes live.

    Kind `runtime`; what the factory makes keeps `contracts.observing.Runtime`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_recipes() -> Iterable[Component]:
    """Packaged recipes: `factory` names a YAML file as `module:relative/path.yaml`.

    Kind `recipe`; what the factory makes keeps `a YAML file`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


@hookspec
def miles_middleware() -> Iterable[Component]:
    """Middleware: wrap an agent, a generator or a rollout.

    Kind `middleware`; what the factory makes keeps `the contract of the layer it wraps`. Since 1.0.
    """
    raise AssertionError("a hook specification is never called")


# Events


@hookspec
def miles_run_started(run: str, folder: Path, recipe: Mapping[str, Any]) -> None:
    """A run begins, or is resumed: its name, folder and resolved recipe (JSON data). Since 1.0."""


@hookspec
def miles_group_finished(run: str, group: str, task: str, disposition: str, reward: float | None) -> None:
    """A group left the rollout: kept (`buffered`) or discarded (why); its mean reward. Since 1.0."""


@hookspec
def miles_step_finished(run: str, step: int, metrics: Mapping[str, float]) -> None:
    """A batch was trained; metrics as in metrics.jsonl. Since 1.0."""


@hookspec
def miles_weights_published(run: str, version: int, seconds: float) -> None:
    """Every engine reported the version. Since 1.0."""


@hookspec
def miles_evaluated(run: str, name: str, step: int, version: int, score: float | None, skipped: str) -> None:
    """An evaluation was filed; `score` is None when it was skipped, with the cause. Since 1.0."""


@hookspec
def miles_checkpoint_saved(run: str, step: int, folder: Path) -> None:
    """A checkpoint is complete on disk. Since 1.0."""


@hookspec
def miles_run_finished(run: str, folder: Path, steps: int) -> None:
    """The run ended as its recipe says. Since 1.0."""


@hookspec
def miles_run_failed(run: str, folder: Path, error: str, interrupted: bool) -> None:
    """The run ended early; what was saved stays. Since 1.0."""
