"""What this plugin registers. Components are named, not imported, so that enabling the plugin costs nothing."""

from collections.abc import Iterable

from miles_core import Component, hookimpl


@hookimpl
def miles_advantages() -> Iterable[Component]:
    return [
        Component(
            "xyz",
            factory="miles_plugin_xyz.advantage:XyzAdvantage",
            options="miles_plugin_xyz.options:XyzOptions",
            summary="Ranks within the group, from -1 for the worst to 1 for the best",
        )
    ]
