"""What this package registers."""

from __future__ import annotations

from collections.abc import Iterable

from miles_core import Component, hookimpl


@hookimpl
def miles_data() -> Iterable[Component]:
    return [
        Component(
            "reasoning-gym",
            factory="miles_plugin_reasoning_gym.data:ReasoningGymData",
            options="miles_plugin_reasoning_gym.options:DataOptions",
            summary="Tasks of any reasoning-gym generators, mixed by weight, with a held-out split",
            example={"tasks": ["chain_sum"], "size": 16, "held_out": 8},
        )
    ]


@hookimpl
def miles_rewards() -> Iterable[Component]:
    return [
        Component(
            "reasoning-gym",
            factory="miles_plugin_reasoning_gym.reward:ReasoningGymReward",
            options="miles_plugin_reasoning_gym.options:RewardOptions",
            summary="The graded score of the reasoning-gym generator that made the task",
        )
    ]
