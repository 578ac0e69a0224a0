"""What a plugin needs, against what is installed: told before it is imported, with both versions."""

from __future__ import annotations

from miles_core.errors import Problem
from miles_core.host.metadata import normalise
from miles_core.host.names import CORE_DISTRIBUTION
from miles_core.host.needs import RequirementState, check_requirements
from miles_core.host.scan import Index, InstalledPlugin


def unmet_requirements(plugin: InstalledPlugin, index: Index, core_version: str) -> list[Problem]:
    """Every `Requires-Dist` of the plugin that does not hold here; those of extras and other platforms do not count.

    Versions are those that the scan read, so that damaged metadata of other distributions cannot stand in the way. An
    index made by hand, without versions, is asked for the core alone.
    """
    versions = {**index.versions, CORE_DISTRIBUTION: core_version}
    unmet = [state for state in check_requirements(plugin.requires, versions) if not state.ok]
    return [
        _problem(plugin, state, index) for state in unmet if index.versions or state.name in (CORE_DISTRIBUTION, "")
    ]


def _problem(plugin: InstalledPlugin, state: RequirementState, index: Index) -> Problem:
    if not state.name:
        return Problem(f"plugin {plugin.title}: {state.fault}", plugin.location, f"reinstall {plugin.distribution}")
    asked = state.requirement.partition(";")[0].strip()
    needs = f"plugin {plugin.title} needs {asked}"
    if state.name == CORE_DISTRIBUTION:
        mend = f"pip install --upgrade {CORE_DISTRIBUTION} {plugin.distribution}"
        return Problem(f"{needs}, this is {CORE_DISTRIBUTION} {state.installed}", plugin.location, mend)
    install = f"pip install '{asked}'"
    if state.installed is not None:
        return Problem(f"{needs}, installed is {state.name} {state.installed}", plugin.location, install)
    damage = next((each for each in index.damaged if normalise(each.distribution) == state.name), None)
    how = f"whose metadata is damaged: {damage}" if damage else "which is not installed"
    return Problem(f"{needs}, {how}", plugin.location, install)
