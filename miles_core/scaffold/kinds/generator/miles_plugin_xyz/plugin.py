"""What this plugin registers. Components are named, not imported, so that enabling the plugin costs nothing."""

from collections.abc import Iterable

from miles_core import Component, hookimpl


@hookimpl
def miles_generators() -> Iterable[Component]:
    return [
        Component(
            "xyz",
            factory="miles_plugin_xyz.generator:XyzGenerator",
            options="miles_plugin_xyz.options:XyzOptions",
            summary="Answers, is asked to look again, and answers again",
        )
    ]
