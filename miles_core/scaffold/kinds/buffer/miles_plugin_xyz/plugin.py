"""What this plugin registers. Components are named, not imported, so that enabling the plugin costs nothing."""

from collections.abc import Iterable

from miles_core import Component, hookimpl


@hookimpl
def miles_buffers() -> Iterable[Component]:
    return [
        Component(
            "xyz",
            factory="miles_plugin_xyz.buffer:XyzBuffer",
            options="miles_plugin_xyz.options:XyzOptions",
            summary="Bounded, newest first",
        )
    ]
