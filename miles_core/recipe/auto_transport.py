"""What `transport: {use: auto}` stands for: it goes by what the runtime says of its machines."""

from __future__ import annotations

from typing import TYPE_CHECKING

from miles_core.contracts.capabilities import ONE_MACHINE
from miles_core.errors import MilesError, RequestError
from miles_core.host.load import guarded
from miles_core.host.registry import Registered, Registry

if TYPE_CHECKING:
    from miles_core.recipe.choose import Chosen

AUTO = "auto"
OF_ONE_MACHINE = "shared-memory"


def automatic_transport(registry: Registry, runtime: Chosen | None) -> tuple[str, str]:
    """The transport's name and why it is this one.

    Where all workers share one machine it is the core's; where they may not, the one that crosses machines, the
    runtime's own before any other. Raises RequestError when there is none, or no telling which.
    """
    spans = _spans_machines(runtime)
    if runtime is None or not spans:
        return OF_ONE_MACHINE, "auto: engines and trainer share one machine"
    crossing = [each for each in registry.components("transport") if ONE_MACHINE not in each.component.capabilities]
    found = [each for each in crossing if each.plugin.distribution == runtime.plugin.distribution] or crossing
    if len(found) != 1:
        names = ", ".join(_clear_name(registry, each) for each in found) or "none"
        raise RequestError(
            f"auto: {spans}, and of the enabled plugins' transports not one crosses machines, but: {names}"
            if found
            else f"auto: {spans}, and no enabled plugin has a transport that crosses machines",
            mend="write `transport: {use: NAME}`",
        )
    name = _clear_name(registry, found[0])
    return name, f"auto: {spans}, and {found[0].component.name} crosses machines"


def _spans_machines(runtime: Chosen | None) -> str:
    """Why the runtime's workers may be on several machines, in its own words; "" when they share one."""
    say = getattr(runtime.options, "spans_machines", None) if runtime is not None else None
    if runtime is None or say is None:
        return ""
    what = f"failed to say whether runtime {runtime.ref.name!r} uses several machines"
    return guarded(runtime.plugin, what, lambda: str(say()))


def _clear_name(registry: Registry, found: Registered) -> str:
    try:
        registry.find("transport", found.component.name)
    except MilesError:
        return found.qualified
    return found.component.name
