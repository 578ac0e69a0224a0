"""What this plugin registers. A recipe's factory is `package:path of its YAML file in it`."""

from collections.abc import Iterable

from miles_core import Component, hookimpl


@hookimpl
def miles_recipes() -> Iterable[Component]:
    return [
        Component(
            "xyz",
            factory="miles_plugin_xyz:recipes/xyz.yaml",
            summary="The toy ring, for twenty steps",
        )
    ]
