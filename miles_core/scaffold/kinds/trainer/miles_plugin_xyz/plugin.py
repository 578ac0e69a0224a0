"""What this plugin registers. Components are named, not imported, so that enabling the plugin costs nothing."""

from collections.abc import Iterable

from miles_core import Component, hookimpl


@hookimpl
def miles_trainers() -> Iterable[Component]:
    return [
        Component(
            "xyz",
            factory="miles_plugin_xyz.trainer:XyzTrainer",
            options="miles_plugin_xyz.options:XyzOptions",
            summary="Gradient descent with momentum on one vector of logits",
            capabilities=frozenset({"toy-model"}),  # it knows no other: remove this when yours does
        )
    ]
