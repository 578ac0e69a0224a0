"""May an enabled plugin be imported? Asked of its metadata alone; answered with all that speaks against it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from miles_core.contracts.hook_api import HOOK_API_VERSION, keeps
from miles_core.errors import Problem
from miles_core.host.allowed import AllowList
from miles_core.host.known_bad import known_fault
from miles_core.host.names import CORE_DISTRIBUTION
from miles_core.host.requirements import unmet_requirements
from miles_core.host.scan import HOOK_API_GROUP, Index, InstalledPlugin

INCOMPATIBLE, BLOCKED = "incompatible", "blocked"


class Objection(NamedTuple):
    """Why a plugin is refused; `status` is INCOMPATIBLE or BLOCKED."""

    status: str
    problem: Problem


def objections(
    plugin: InstalledPlugin,
    index: Index,
    core_version: str,
    known_bad: Mapping[str, tuple[str, str, str]],
    allowed: AllowList | None,
) -> list[Objection]:
    """Everything that speaks against importing the plugin: the blocklist, an allow-list, its hook API, what it needs.
    Nothing ever speaks against the core's own."""
    if plugin.distribution == CORE_DISTRIBUTION:
        return []
    blocked = [known_fault(plugin, known_bad), allowed.objection(plugin) if allowed is not None else None]
    unfit = [hook_api_fault(plugin), *unmet_requirements(plugin, index, core_version)]
    return [
        *(Objection(BLOCKED, problem) for problem in blocked if problem is not None),
        *(Objection(INCOMPATIBLE, problem) for problem in unfit if problem is not None),
    ]


def hook_api_fault(plugin: InstalledPlugin, host: str = HOOK_API_VERSION) -> Problem | None:
    """What is wrong with the hook API that the plugin declares; None when this host keeps it. MAJOR must be equal, and
    MINOR at most the host's; a plugin that declares none was written for 1.0."""
    declared = plugin.hook_api or "1.0"
    kept = keeps(declared, host)
    if kept:
        return None
    if kept is None:
        return Problem(
            f"plugin {plugin.title} declares the hook API {declared!r}, expected one number MAJOR.MINOR",
            plugin.location,
            f'in its entry points, group {HOOK_API_GROUP}: "{host}" = "{plugin.module.partition(".")[0]}"',
        )
    newer = [int(part) for part in declared.split(".")] > [int(part) for part in host.split(".")]
    upgrade = CORE_DISTRIBUTION if newer else plugin.distribution
    return Problem(
        f"plugin {plugin.title} was written for hook API {declared}, this host has {host}",
        plugin.location,
        f"pip install --upgrade {upgrade}",
    )
