"""Every hook that a plugin may implement.

A plugin's entry point (group `miles.plugins`) names a module or an object whose functions are marked with
`@miles_core.hookimpl` and named like the hook. There are three sorts of hooks:

- *registration hooks* (`rollout`, `learning`), one for each kind of component: called once, at activation; they return
  `Component`s, which name factory and options as strings, so that registering imports nothing heavy;
- *event hooks* (`events`): called by the driver when something happened; what they return is ignored;
- *hooks of plugins*: what a plugin adds through `miles_hookspecs` (`own`); they are event hooks, too.

Hot paths never call hooks. An implementation may leave out arguments that it does not need. Each hook's text says what
it is for, when and how often it is called, its arguments, the version that brought it, and an example.
"""

from __future__ import annotations

from collections.abc import Mapping

from miles_core.contracts.hook_api import HOOK_API_VERSION as HOOK_API_VERSION

# Hooks in the order of their pages, not of the alphabet:
# isort: off
from miles_core.hookspecs.marks import Deprecated, HookFacts, facts_of, hookimpl, hookspec
from miles_core.hookspecs.rollout import (
    miles_agents,
    miles_generators,
    miles_rollouts,
    miles_data,
    miles_rewards,
    miles_filters,
    miles_buffers,
    miles_staleness,
    miles_schedules,
    miles_matchers,
    miles_evaluators,
    miles_middleware,
)
from miles_core.hookspecs.learning import (
    miles_advantages,
    miles_corrections,
    miles_losses,
    miles_model_specs,
    miles_renderers,
    miles_engines,
    miles_trainers,
    miles_transports,
    miles_precisions,
    miles_trackers,
    miles_runtimes,
    miles_recipes,
)
from miles_core.hookspecs.events import (
    miles_run_started,
    miles_group_finished,
    miles_step_finished,
    miles_weights_published,
    miles_evaluated,
    miles_checkpoint_saved,
    miles_run_finished,
    miles_run_failed,
)
from miles_core.hookspecs.own import miles_hookspecs

# isort: on

__all__ = [
    "HOOK_API_VERSION",
    "HOOK_OF_KIND",
    "REMOVED_HOOKS",
    "Deprecated",
    "HookFacts",
    "facts_of",
    "hookimpl",
    "hookspec",
    "miles_agents",
    "miles_generators",
    "miles_rollouts",
    "miles_data",
    "miles_rewards",
    "miles_filters",
    "miles_buffers",
    "miles_staleness",
    "miles_schedules",
    "miles_matchers",
    "miles_evaluators",
    "miles_middleware",
    "miles_advantages",
    "miles_corrections",
    "miles_losses",
    "miles_model_specs",
    "miles_renderers",
    "miles_engines",
    "miles_trainers",
    "miles_transports",
    "miles_precisions",
    "miles_trackers",
    "miles_runtimes",
    "miles_recipes",
    "miles_run_started",
    "miles_group_finished",
    "miles_step_finished",
    "miles_weights_published",
    "miles_evaluated",
    "miles_checkpoint_saved",
    "miles_run_finished",
    "miles_run_failed",
    "miles_hookspecs",
]

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
"""Kind of component -> its registration hook."""

REMOVED_HOOKS: Mapping[str, Deprecated] = {}
"""Hooks that once were, for one major version after their end: whoever still implements one is told what to do."""
