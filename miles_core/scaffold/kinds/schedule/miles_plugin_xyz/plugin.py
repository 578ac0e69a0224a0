"""What this plugin registers. Components are named, not imported, so that enabling the plugin costs nothing."""

from collections.abc import Iterable

from miles_core import Component, hookimpl


@hookimpl
def miles_schedules() -> Iterable[Component]:
    return [
        Component(
            "xyz",
            factory="miles_plugin_xyz.schedule:XyzSchedule",
            options="miles_plugin_xyz.options:XyzOptions",
            summary="Publishes after every step at first, then after every few",
            example={"groups_per_step": 8, "group_size": 8},  # those without a default, for the conformance kit
        )
    ]
