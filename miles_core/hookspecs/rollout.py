"""Registration hooks of what makes, judges and holds trajectories.

Examples begin with `from miles_core import Component, hookimpl`.
"""

from __future__ import annotations

from collections.abc import Iterable

from miles_core.contracts.component import Component
from miles_core.hookspecs.marks import hookspec


@hookspec(since="1.0")
def miles_agents() -> Iterable[Component]:
    """Agents: run an environment against a chat endpoint.

    The factory makes a `miles_core.Agent`, in the driver, for each phase whose `agent:` names it.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_agents():
            return [Component("arena", factory="my_package.agent:Arena", summary="Two players, one judge")]
    """
    return ()


@hookspec(since="1.0")
def miles_generators() -> Iterable[Component]:
    """Generators: make one trajectory with the engine client.

    The factory makes a `miles_core.Generator`, in the driver, for each phase whose `generator:` names it.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_generators():
            return [Component("best-of", factory="my_package.generate:BestOf", options="my_package.options:BestOf")]
    """
    return ()


@hookspec(since="1.0")
def miles_rollouts() -> Iterable[Component]:
    """Rollouts: own the whole rollout phase.

    The factory makes a `miles_core.Rollout`, in the driver, for each phase whose `rollout:` names it.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_rollouts():
            return [Component("refill", factory="my_package.refill:Refill", options="my_package.options:Refill")]
    """
    return ()


@hookspec(since="1.0")
def miles_data() -> Iterable[Component]:
    """Data sources: tasks with resumable state.

    The factory makes a `miles_core.Data`, in the driver, for each phase whose `data:` names it.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_data():
            return [Component("sums", factory="my_package.sums:Sums", options="my_package.options:Sums")]
    """
    return ()


@hookspec(since="1.0")
def miles_rewards() -> Iterable[Component]:
    """Rewards: score a finished group.

    The factory makes a `miles_core.Reward`, in the driver, for each entry of a phase's `rewards:`.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_rewards():
            return [Component("length", factory="my_package.length:Length", summary="Shorter is better")]
    """
    return ()


@hookspec(since="1.0")
def miles_filters() -> Iterable[Component]:
    """Filters: keep or drop a scored group, with a reason.

    The factory makes a `miles_core.Filter`, in the driver, for each entry of a phase's `filters:`.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_filters():
            return [Component("solved", factory="my_package.solved:Solved", summary="Drops what is always solved")]
    """
    return ()


@hookspec(since="1.0")
def miles_buffers() -> Iterable[Component]:
    """Buffers: hold finished groups between rollout and trainer.

    The factory makes a `miles_core.Buffer`, in the driver, for each phase whose `buffer:` names it.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_buffers():
            return [Component("newest", factory="my_package.newest:Newest", options="my_package.options:Newest")]
    """
    return ()


@hookspec(since="1.0")
def miles_staleness() -> Iterable[Component]:
    """Staleness policies: say which waiting groups are too old.

    The factory makes a `miles_core.Staleness`, in the driver, for each phase whose `staleness:` names it.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_staleness():
            return [Component("oldest-token", factory="my_package.age:OldestToken", options="my_package.options:Age")]
    """
    return ()


@hookspec(since="1.0")
def miles_schedules() -> Iterable[Component]:
    """Schedules: say when groups start and when weights are published.

    The factory makes a `miles_core.Schedule`, in the driver; its options derive from `miles_core.ScheduleOptions`.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_schedules():
            return [Component("eager", factory="my_package.eager:Eager", options="my_package.options:Eager")]
    """
    return ()


@hookspec(since="1.0")
def miles_matchers() -> Iterable[Component]:
    """Matchers: decide whether a replayed message is the stored one.

    The factory makes a `miles_core.Matcher`, in the driver, where a session compares histories.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_matchers():
            return [Component("loose", factory="my_package.loose:Loose", summary="Role and content only")]
    """
    return ()


@hookspec(since="1.0")
def miles_evaluators() -> Iterable[Component]:
    """Evaluators: measure a weight version.

    The factory makes a `miles_core.Evaluator`, in the driver, for each entry of a phase's `evaluate:`.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_evaluators():
            return [
                Component("hard-tasks", factory="my_package.hard:HardTasks", options="my_package.options:HardTasks")
            ]
    """
    return ()


@hookspec(since="1.0")
def miles_middleware() -> Iterable[Component]:
    """Middleware: wraps an agent, a generator or a rollout.

    The factory makes a `miles_core.Middleware`, in the driver, for each entry of a phase's `middleware:`.
    Called once, at activation, in the driver. Since 1.0.

        @hookimpl
        def miles_middleware():
            return [Component("cache", factory="my_package.cache:Cache", options="my_package.options:Cache")]
    """
    return ()
