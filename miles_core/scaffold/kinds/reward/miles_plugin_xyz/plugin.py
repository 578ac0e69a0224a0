"""What this plugin registers. Components are named, not imported, so that enabling the plugin costs nothing."""

from collections.abc import Iterable

from miles_core import Component, hookimpl


@hookimpl
def miles_rewards() -> Iterable[Component]:
    return [
        Component(
            "xyz",
            factory="miles_plugin_xyz.reward:XyzReward",
            options="miles_plugin_xyz.options:XyzOptions",
            summary="1 for an empty answer, falling to 0 at a limit of characters",
        )
    ]
