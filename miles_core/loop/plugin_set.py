"""The plugin set of a run: put on record when it starts, compared when it must be the same one."""

from __future__ import annotations

import warnings
from pathlib import Path

from miles_core.errors import PluginError, Problem
from miles_core.hookspecs import HOOK_API_VERSION
from miles_core.host.drift import differences, drift, is_of_editable_code
from miles_core.host.lock import Lock, LockedPlugin, lock_code, read_lock
from miles_core.host.registry import Registry
from miles_core.recipe.resolved import Plan


def plugin_set(plan: Plan, registry: Registry) -> tuple[LockedPlugin, ...]:
    """The plan's plugins with the state of editable code, which git is asked for."""
    return lock_code(plan.plugins, registry.plugins)


def refuse_drift(file: Path, plugins: tuple[LockedPlugin, ...]) -> None:
    """Raise PluginError saying in what the set differs from the lock in `file`."""
    problems = drift(read_lock(file), Lock(plugins, HOOK_API_VERSION))
    if problems:
        raise PluginError([Problem("the plugin set is another than the locked one", str(file)), *problems])


def continue_with(file: Path, plugins: tuple[LockedPlugin, ...]) -> None:
    """The same for a run that goes on, except that edited code of editable plugins is only warned of: whoever edits
    it in the middle of a run may have mended what stopped the run."""
    locked, here = read_lock(file), Lock(plugins, HOOK_API_VERSION)
    found = differences(locked, here)
    edited = [each for each in found if is_of_editable_code(each, plugins)]
    for each in edited:
        warnings.warn(each.sentence("in the lock", "here"), stacklevel=2)
    problems = [Problem(each.sentence("in the lock", "here")) for each in found if each not in edited]
    if problems:
        raise PluginError([Problem("the plugin set is another than the locked one", str(file)), *problems])
