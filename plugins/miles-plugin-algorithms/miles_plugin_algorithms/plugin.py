"""What this package registers. Names only: neither numpy nor torch is imported here."""

from __future__ import annotations

from collections.abc import Iterable

from miles_core import Component, hookimpl


@hookimpl
def miles_advantages() -> Iterable[Component]:
    return [
        Component(
            "grpo",
            factory="miles_plugin_algorithms.grpo:Grpo",
            options="miles_plugin_algorithms.grpo:GrpoOptions",
            summary="Rewards against their group's mean, divided by its standard deviation",
        ),
        Component(
            "rloo",
            factory="miles_plugin_algorithms.rloo:Rloo",
            options="miles_plugin_algorithms.rloo:RlooOptions",
            summary="Rewards against the mean of the group's other trajectories",
        ),
        Component(
            "reinforce-plus-plus-baseline",
            factory="miles_plugin_algorithms.reinforce_plus_plus_baseline:ReinforcePlusPlusBaseline",
            options="miles_plugin_algorithms.reinforce_plus_plus_baseline:ReinforcePlusPlusBaselineOptions",
            summary="Rewards against their group's mean, whitened over the whole batch",
        ),
    ]


@hookimpl
def miles_losses() -> Iterable[Component]:
    return [
        Component(
            "policy",
            factory="miles_plugin_algorithms.policy:PolicyLoss",
            options="miles_plugin_algorithms.policy_options:PolicyOptions",
            summary="Clipped policy-gradient loss at token or sequence level, with an optional KL to a reference",
            capabilities=frozenset({"needs-advantage"}),
        ),
        Component(
            "supervised",
            factory="miles_plugin_algorithms.supervised:SupervisedLoss",
            options="miles_plugin_algorithms.supervised_options:SupervisedOptions",
            summary="Negative log-probability of demonstrations",
        ),
    ]


@hookimpl
def miles_corrections() -> Iterable[Component]:
    return [
        Component(
            "tis",
            factory="miles_plugin_algorithms.correction:TruncatedImportance",
            options="miles_plugin_algorithms.correction_options:TisOptions",
            summary="Truncated importance sampling: the mismatch ratio clamped to an interval",
        ),
        Component(
            "pop",
            factory="miles_plugin_algorithms.correction:ClipOrPop",
            options="miles_plugin_algorithms.correction_options:PopOptions",
            summary="Clip-or-pop (IcePop): the mismatch ratio inside an interval, 0 outside",
        ),
        Component(
            "mask",
            factory="miles_plugin_algorithms.correction:Mask",
            options="miles_plugin_algorithms.correction_options:MaskOptions",
            summary="Weight 1 where the mismatch ratio (of the sequence) lies inside an interval, 0 outside",
        ),
    ]
