"""What this plugin registers. Components are named, not imported, so that enabling the plugin costs nothing."""

from collections.abc import Iterable

from miles_core import Component, hookimpl


@hookimpl
def miles_evaluators() -> Iterable[Component]:
    return [
        Component(
            "xyz",
            factory="miles_plugin_xyz.evaluator:XyzEvaluator",
            options="miles_plugin_xyz.options:XyzOptions",
            summary="pass@k of held-out tasks, on the engines that also roll out",
        )
    ]
