"""The hook through which a plugin brings hooks of its own."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from miles_core.hookspecs.marks import hookspec


@hookspec(since="1.1")
def miles_hookspecs() -> Iterable[Any]:
    """Hooks of a plugin's own, that other plugins may implement.

    Each item is a module or an object whose functions are marked `@miles_core.hookspec` and named `miles_<plugin>_…`,
    where `<plugin>` is the entry point's name with `_` for every other sign than letters and digits. They are event
    hooks: the plugin tells of them through the `EventSink` that it is given, without `miles_`, as in
    `context.events.emit("example_tool_called", tool="search")`, isolated like the core's own. `run`, the run's name,
    is added for those that ask for it. Who implements one but can do without marks it
    `@hookimpl(optionalhook=True)`.
    Called once, at activation, in the driver, before implementations are looked at. Since 1.1.

        class Hooks:
            @hookspec
            def miles_example_tool_called(self, run, tool):
                "An agent called a tool."

        @hookimpl
        def miles_hookspecs():
            return [Hooks()]
    """
    return ()
