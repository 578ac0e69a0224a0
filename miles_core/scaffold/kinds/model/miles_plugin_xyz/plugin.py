"""What this plugin registers. Components are named, not imported, so that enabling the plugin costs nothing."""

from collections.abc import Iterable

from miles_core import Component, hookimpl


@hookimpl
def miles_model_specs() -> Iterable[Component]:
    return [
        Component(
            "xyz",
            factory="miles_plugin_xyz.model:XyzModel",
            options="miles_plugin_xyz.options:XyzOptions",
            summary="A small model over ASCII characters",
        )
    ]
