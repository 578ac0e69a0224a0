"""What this plugin registers. Components are named, not imported, so that enabling the plugin costs nothing."""

from collections.abc import Iterable

from miles_core import Component, hookimpl


@hookimpl
def miles_engines() -> Iterable[Component]:
    return [
        Component(
            "xyz",
            factory="miles_plugin_xyz.engine:XyzEngine",
            options="miles_plugin_xyz.options:XyzOptions",
            summary="Samples from one vector of logits",
            capabilities=frozenset({"toy-model"}),  # it knows no other: remove this when yours does
        )
    ]
