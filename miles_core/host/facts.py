"""What can be known of every installed plugin without importing it: how it stands, what it needs, how it was checked.

`miles plugins list` reads this at every call, so hashes, commits and addresses are left to those who ask for them.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from miles_core.contracts.hook_api import HOOK_API_VERSION, keeps
from miles_core.host.found import Damage
from miles_core.host.needs import RequirementState, check_requirements
from miles_core.host.scan import Index, InstalledPlugin
from miles_core.host.source import RECORD_OF_CHECKS, code_digest, package_folder

INSTALLED, ENABLED, DISABLED, SHADOWED = "installed", "enabled", "disabled", "shadowed"
INCOMPATIBLE, BROKEN = "incompatible", "broken"

CHECKS_FORMAT = 1


class Checked(NamedTuple):
    """What the conformance kit recorded in the package. `current` tells whether it is of what is installed: of its
    version and, where the package is a source folder that somebody may edit, of its code (`edited` says otherwise)."""

    version: str
    grade: str
    evidence: Mapping[str, str]
    hook_api: str
    current: bool
    code: str = ""
    edited: bool = False

    @property
    def label(self) -> str:
        """The grade as listings show it."""
        grade = self.grade or "none"
        return grade if self.current else f"{grade}, of {'other code' if self.edited else self.version}"

    @property
    def summary(self) -> str:
        """The evidence of all components in a few words; of another version it says nothing."""
        if not self.current:
            return ""
        counts: dict[str, int] = {}
        for level in self.evidence.values():
            counts[level] = counts.get(level, 0) + 1
        return next(iter(counts), "") if len(counts) < 2 else ", ".join(f"{n} {level}" for level, n in counts.items())


class Choice(NamedTuple):
    """What the decision says of a plugin here: a status, and why when it may not be imported."""

    status: str
    error: str = ""


class Facts(NamedTuple):
    """One row of a listing. `error` says why it is broken or incompatible; `shadows` are locations that it hides."""

    plugin: InstalledPlugin
    status: str
    error: str = ""
    requirements: tuple[RequirementState, ...] = ()
    checked: Checked | None = None
    shadows: tuple[str, ...] = ()


def facts_of(index: Index, choices: Mapping[str, Choice]) -> tuple[Facts, ...]:
    """Every plugin, the broken and the shadowed ones too. `choices` says of `distribution:name` what was decided
    about it here."""
    rows = [_facts(plugin, index, choices) for plugin in index.plugins]
    known = {plugin.distribution for plugin in index.plugins}
    rows += [_broken(damage) for damage in index.damaged if damage.plugin and damage.distribution not in known]
    hidden = [Facts(plugin, SHADOWED, f"hidden by {plugin.shadowed_by}") for plugin in index.shadowed]
    return (*sorted(rows, key=lambda row: (row.plugin.distribution, row.plugin.name)), *hidden)


def _facts(plugin: InstalledPlugin, index: Index, choices: Mapping[str, Choice]) -> Facts:
    requirements = check_requirements(plugin.requires, index.versions)
    unmet = [state for state in requirements if not state.ok]
    unasked = Choice(ENABLED if is_core(plugin) else INSTALLED)
    choice = choices.get(f"{plugin.distribution}:{plugin.name}", unasked)
    status = choice.status
    hook_api = _hook_api_fault(plugin)
    if any(state.installed is None for state in unmet):
        status = BROKEN
    elif unmet or hook_api:
        status = INCOMPATIBLE
    damages = [str(damage) for damage in index.damaged if damage.location == plugin.location]
    checked, fault = read_checked(plugin)
    faults = [*(state.fault for state in unmet), hook_api, *damages, fault]
    error = "; ".join(each for each in faults if each) or choice.error
    shadows = tuple(each.location for each in index.shadowed if each.shadowed_by == plugin.location)
    return Facts(plugin, status, error, requirements, checked, shadows)


def is_core(plugin: InstalledPlugin) -> bool:
    """The core's own plugin, which is enabled whatever anybody says."""
    return (plugin.distribution, plugin.name) == ("miles-core", "core")


def _hook_api_fault(plugin: InstalledPlugin) -> str:
    declared = plugin.hook_api or "1.0"
    return "" if keeps(declared) else f"was written for hook API {declared}, this host has {HOOK_API_VERSION}"


def _broken(damage: Damage) -> Facts:
    folder = os.path.basename(damage.location).removesuffix(".dist-info")  # noqa: PTH119
    version = folder.split("-", 2)[1] if "-" in folder else ""
    plugin = InstalledPlugin(damage.plugin, damage.distribution, version, "", location=damage.location)
    return Facts(plugin, BROKEN, str(damage))


def read_checked(plugin: InstalledPlugin) -> tuple[Checked | None, str]:
    """The record of checks in the plugin's package, if it ships one, and what is wrong with it, if anything is."""
    folder = package_folder(plugin)
    if not folder:
        return None, ""
    file = os.path.join(folder, RECORD_OF_CHECKS)  # noqa: PTH118
    try:
        with open(file, encoding="utf-8") as handle:  # noqa: PTH123
            text = handle.read()
    except FileNotFoundError:
        return None, ""
    except (OSError, UnicodeDecodeError) as error:
        return None, f"{file} cannot be read: {error}"
    import json

    try:
        checked = _checked(json.loads(text), plugin)
        if checked is not None and plugin.editable and checked.current and _edited(checked, plugin):
            checked = checked._replace(current=False, edited=True)
        return checked, ""
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        return None, f"{file} is no record of checks: {error!r}"


def is_of_other_code(row: Facts) -> bool:
    """Whether the record of checks was made of other code than the package now has: somebody edited it since."""
    return row.checked is not None and (row.checked.edited or _edited(row.checked, row.plugin))


def _edited(checked: Checked, plugin: InstalledPlugin) -> bool:
    """The core's own plugins share their package, so of them nothing can be told."""
    folder = package_folder(plugin)
    if not folder or not checked.code or plugin.distribution == "miles-core":
        return False
    from pathlib import Path

    return code_digest(Path(folder)) != checked.code


def _checked(content: Any, plugin: InstalledPlugin) -> Checked | None:
    if content["format"] != CHECKS_FORMAT:
        raise ValueError(f"format {content['format']!r}, expected {CHECKS_FORMAT}")
    if content["plugin"] != plugin.name:
        return None  # of another plugin in the same package
    return Checked(
        version=str(content["version"]),
        grade=str(content["grade"] or ""),
        evidence={str(name): str(level) for name, level in content["evidence"].items()},
        hook_api=str(content["hook_api"]),
        current=content["version"] == plugin.version,
        code=str(content.get("code", "")),
    )
