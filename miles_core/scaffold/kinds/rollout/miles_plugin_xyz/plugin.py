"""What this plugin registers. Components are named, not imported, so that enabling the plugin costs nothing."""

from collections.abc import Iterable

from miles_core import Component, hookimpl


@hookimpl
def miles_rollouts() -> Iterable[Component]:
    return [
        Component(
            "xyz",
            factory="miles_plugin_xyz.rollout:XyzRollout",
            options="miles_plugin_xyz.options:XyzOptions",
            summary="Keeps a number of groups in flight; a finished one is replaced at once",
        )
    ]
