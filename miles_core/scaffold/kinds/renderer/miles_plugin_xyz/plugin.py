"""What this plugin registers. Components are named, not imported, so that enabling the plugin costs nothing."""

from collections.abc import Iterable

from miles_core import Component, hookimpl


@hookimpl
def miles_renderers() -> Iterable[Component]:
    return [
        Component(
            "xyz",
            factory="miles_plugin_xyz.renderer:XyzRenderer",
            options="miles_plugin_xyz.options:XyzOptions",
            summary="Each message is a line that begins with its role",
        )
    ]
