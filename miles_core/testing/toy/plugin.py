"""The `toy` plugin: a whole ring in numpy, without torch. For learning the tool and for testing plugins beside it.

Its policy knows one distribution over characters, whatever the prompt: a vector of logits. The engine samples from it,
the trainer climbs the exact REINFORCE gradient, and both are real: rewards go up, versions are published, runs resume.
"""

from __future__ import annotations

from collections.abc import Iterable

from miles_core.contracts.component import Component
from miles_core.hookspecs import hookimpl


@hookimpl
def miles_data() -> Iterable[Component]:
    return [Component("toy", "miles_core.testing.toy.data:ToyData", summary="Which of two digits is larger?")]


@hookimpl
def miles_model_specs() -> Iterable[Component]:
    return [
        Component(
            "toy",
            "miles_core.testing.toy.model:ToyModel",
            "miles_core.testing.toy.model:ToyModelOptions",
            "One distribution over ASCII characters, whatever the prompt",
        )
    ]


@hookimpl
def miles_engines() -> Iterable[Component]:
    return [
        Component(
            "toy",
            "miles_core.testing.toy.engine:ToyEngine",
            "miles_core.testing.toy.engine:ToyEngineOptions",
            "Samples from the toy model",
            capabilities=frozenset({"images"}),
            example={"seconds_per_token": 0.0005},
        )
    ]


@hookimpl
def miles_trainers() -> Iterable[Component]:
    return [
        Component(
            "toy",
            "miles_core.testing.toy.trainer:ToyTrainer",
            "miles_core.testing.toy.trainer:ToyTrainerOptions",
            "Exact policy gradient of the toy model",
            capabilities=frozenset({"images"}),
            example={"learning_rate": 1.0},
        )
    ]


@hookimpl
def miles_losses() -> Iterable[Component]:
    return [
        Component(
            "toy",
            "miles_core.testing.toy.learning:ToyLoss",
            summary="-advantage x log-prob, averaged over all sampled tokens of the step",
        )
    ]


@hookimpl
def miles_advantages() -> Iterable[Component]:
    return [
        Component("toy", "miles_core.testing.toy.learning:ToyAdvantage", summary="Reward minus the mean of the group")
    ]
