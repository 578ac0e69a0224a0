"""The core's own plugin: the defaults that every run may use. Registered like any other, always enabled."""

from __future__ import annotations

from collections.abc import Iterable

from miles_core.contracts.component import Component
from miles_core.hookspecs import hookimpl


@hookimpl
def miles_agents() -> Iterable[Component]:
    return [
        Component(
            "command",
            "miles_core.rollout.command_agent:CommandAgent",
            "miles_core.rollout.command_agent:CommandOptions",
            "Any program that speaks OpenAI or Anthropic, one process an episode",
            example={"run": ["python", "-m", "miles_core.testing.fakes.asking_program"]},
        )
    ]


@hookimpl
def miles_generators() -> Iterable[Component]:
    return [
        Component("single-turn", "miles_core.rollout.single_turn:SingleTurn", summary="One prompt, one answer"),
        Component(
            "demonstration",
            "miles_core.rollout.demonstration:Demonstration",
            summary="The task's own answer, for supervised phases; asks no engine",
            capabilities=frozenset({"no-engine"}),
        ),
        Component(
            "tool-loop",
            "miles_core.rollout.tool_loop:ToolLoop",
            "miles_core.rollout.tool_loop:ToolLoopOptions",
            "The model calls typed Python functions until it answers",
            capabilities=frozenset({"token-exact"}),
            example={"tools": ["miles_core.testing.fakes.adding_tool:add"]},
        ),
        Component(
            "agent",
            "miles_core.rollout.agent:AgentGenerator",
            "miles_core.rollout.agent:AgentGeneratorOptions",
            "Runs the recipe's agent against a chat endpoint; keeps every token that was sampled",
            capabilities=frozenset({"needs-agent"}),
        ),
    ]


@hookimpl
def miles_matchers() -> Iterable[Component]:
    return [
        Component(
            "strict",
            "miles_core.session.matching:StrictMatcher",
            summary="Equal in every field that a renderer reads; reasoning may be left out",
        ),
        Component(
            "tool-arguments",
            "miles_core.session.matching:ToolArgumentsMatcher",
            summary="As strict, with the arguments of tool calls compared as JSON",
        ),
        Component(
            "role-content",
            "miles_core.session.matching:RoleContentMatcher",
            summary="Role and content alone: can merge histories whose tool calls differ",
        ),
    ]


@hookimpl
def miles_rollouts() -> Iterable[Component]:
    return [
        Component(
            "groups",
            "miles_core.rollout.groups:GroupsRollout",
            "miles_core.rollout.groups:GroupsOptions",
            "Whole groups, round by round; reproducible to the last bit",
            capabilities=frozenset({"remakes"}),
        ),
        Component(
            "saved",
            "miles_core.rollout.saved:SavedRollout",
            "miles_core.rollout.saved:SavedOptions",
            "Groups that an earlier run saved; asks no engine",
            capabilities=frozenset({"no-engine"}),
            example={"run": "run"},
        ),
    ]


@hookimpl
def miles_data() -> Iterable[Component]:
    return [
        Component(
            "file",
            "miles_core.rollout.file_data:FileData",
            "miles_core.rollout.file_data:FileDataOptions",
            "Tasks from a JSONL or Parquet file",
            example={"path": "tasks.jsonl", "held_out": "held_out.jsonl"},
        )
    ]


@hookimpl
def miles_rewards() -> Iterable[Component]:
    return [
        Component(
            "match",
            "miles_core.rollout.match_reward:MatchReward",
            "miles_core.rollout.match_reward:MatchOptions",
            "1 when the text equals (or contains) the task's answer",
        ),
        Component("agent", "miles_core.rollout.agent_reward:AgentReward", summary="The verdict that the agent gave"),
    ]


@hookimpl
def miles_filters() -> Iterable[Component]:
    return [
        Component(
            "unequal-rewards",
            "miles_core.rollout.unequal_rewards:UnequalRewards",
            "miles_core.rollout.unequal_rewards:UnequalRewardsOptions",
            "Drops groups whose rewards are all equal",
        )
    ]


@hookimpl
def miles_buffers() -> Iterable[Component]:
    return [
        Component(
            "fifo",
            "miles_core.rollout.fifo_buffer:FifoBuffer",
            "miles_core.rollout.fifo_buffer:FifoOptions",
            "Bounded, first in first out",
        )
    ]


@hookimpl
def miles_schedules() -> Iterable[Component]:
    return [
        Component(
            "sync",
            "miles_core.rollout.sync_schedule:SyncSchedule",
            "miles_core.contracts.options:ScheduleOptions",
            "Roll out, train, publish; one after the other",
            example={"groups_per_step": 2, "group_size": 4},
        ),
        Component(
            "one-step-off",
            "miles_core.rollout.one_step_off:OneStepOffSchedule",
            "miles_core.rollout.one_step_off:OneStepOffOptions",
            "The next batch is made while one is trained; as reproducible as sync",
            example={"groups_per_step": 4, "group_size": 8},
        ),
        Component(
            "async",
            "miles_core.rollout.async_schedule:AsyncSchedule",
            "miles_core.rollout.async_schedule:AsyncOptions",
            "Engines never wait for the trainer; how old a group may be is bounded",
            example={"groups_per_step": 4, "group_size": 8},
        ),
        Component(
            "adaptive",
            "miles_core.rollout.adaptive_schedule:AdaptiveSchedule",
            "miles_core.rollout.adaptive_schedule:AdaptiveOptions",
            "async, whose settings follow what the run measures, within bounds",
            example={"groups_per_step": 4, "group_size": 8},
        ),
    ]


@hookimpl
def miles_staleness() -> Iterable[Component]:
    example = {"limit": 1}
    return [
        Component(
            "oldest-token",
            "miles_core.rollout.staleness:OldestToken",
            "miles_core.rollout.staleness:OldestTokenOptions",
            "A group is as old as its oldest token",
            example=example,
        ),
        Component(
            "mean-version",
            "miles_core.rollout.staleness:MeanVersion",
            "miles_core.rollout.staleness:MeanVersionOptions",
            "A group is as old as its tokens are on average",
            example=example,
        ),
        Component(
            "per-token",
            "miles_core.rollout.staleness:PerToken",
            "miles_core.rollout.staleness:PerTokenOptions",
            "Old tokens become context, young ones still teach",
            example=example,
        ),
        Component(
            "resample",
            "miles_core.rollout.staleness:Resample",
            "miles_core.rollout.staleness:ResampleOptions",
            "Old trajectories of a group are made again, the young ones stay",
            example=example,
        ),
    ]


@hookimpl
def miles_middleware() -> Iterable[Component]:
    return [
        Component(
            "limit",
            "miles_core.rollout.limit:Limit",
            "miles_core.rollout.limit:LimitOptions",
            "Generators: so many attempts at once, so many a second",
            example={"concurrent": 8},
        ),
        Component(
            "trace",
            "miles_core.rollout.trace:Trace",
            "miles_core.rollout.trace:TraceOptions",
            "Generators: a line for each attempt, in the run's folder",
        ),
    ]


@hookimpl
def miles_transports() -> Iterable[Component]:
    return [
        Component(
            "shared-memory",
            "miles_core.weights.shared_memory:SharedMemoryTransport",
            summary="One anonymous segment for the processes of one machine",
            capabilities=frozenset({"one-machine"}),
        )
    ]


@hookimpl
def miles_precisions() -> Iterable[Component]:
    return [
        Component("fp32", "miles_core.weights.fp32:Fp32", summary="Engines hold what the trainer holds"),
        Component("bf16", "miles_core.weights.bf16:Bf16", summary="Weights rounded to bfloat16 for the engines"),
    ]


@hookimpl
def miles_evaluators() -> Iterable[Component]:
    return [
        Component(
            "shared",
            "miles_core.loop.evaluation:HeldOutEvaluator",
            "miles_core.loop.evaluation:SharedEvaluatorOptions",
            "Held-out tasks on the engines that also roll out",
        ),
        Component(
            "fleet",
            "miles_core.loop.evaluation:HeldOutEvaluator",
            "miles_core.loop.evaluation:FleetEvaluatorOptions",
            "Held-out tasks on engines that only evaluate, while training goes on",
            capabilities=frozenset({"own-engines"}),
        ),
        Component(
            "command",
            "miles_core.loop.command_evaluation:CommandEvaluator",
            "miles_core.loop.command_evaluation:CommandEvaluatorOptions",
            "Any program over exported weights, while training goes on",
            capabilities=frozenset({"exported-weights", "needs-trainer"}),
            example={"run": ["python", "-m", "miles_core.testing.fakes.scoring_program"]},
        ),
    ]


@hookimpl
def miles_runtimes() -> Iterable[Component]:
    return [
        Component(
            "local",
            "miles_core.runtime.local:LocalRuntime",
            "miles_core.runtime.local:LocalOptions",
            "Child processes of this one",
        ),
        Component(
            "in-process",
            "miles_core.runtime.in_process:InProcessRuntime",
            summary="Everything in this process: for tests and debuggers",
        ),
    ]
