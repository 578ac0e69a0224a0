"""What this plugin registers. Components are named, not imported, so that enabling the plugin costs nothing."""

from collections.abc import Iterable

from miles_core import Component, hookimpl


@hookimpl
def miles_filters() -> Iterable[Component]:
    return [
        Component(
            "xyz",
            factory="miles_plugin_xyz.filter:XyzFilter",
            options="miles_plugin_xyz.options:XyzOptions",
            summary="Drops groups whose answers are too short or too long on average",
        )
    ]
