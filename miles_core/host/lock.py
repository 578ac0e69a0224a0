"""plugins.lock: the set of plugins that a run used, exactly enough to refuse another one."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from miles_core.errors import Problem, RequestError
from miles_core.hookspecs import HOOK_API_VERSION
from miles_core.host.archive import read_member
from miles_core.host.scan import InstalledPlugin

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class LockedPlugin:
    """One enabled plugin as it was: the lines of `plugins.lock`. `record` is the sha256 of the wheel's RECORD file
    ("" where there is none). Research code has an empty distribution and the sha256 of its source file."""

    name: str
    distribution: str
    version: str
    record: str
    editable: bool = False


def lock_plugin(plugin: InstalledPlugin) -> LockedPlugin:
    """The line of an installed plugin."""
    return LockedPlugin(plugin.name, plugin.distribution, plugin.version, _record_hash(plugin), plugin.editable)


def lock_source(name: str, file: Path | None) -> LockedPlugin:
    """The line of research code that a recipe names as `module:attr`."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest() if file is not None and file.is_file() else ""
    return LockedPlugin(name, distribution="", version="", record=digest, editable=True)


def _record_hash(plugin: InstalledPlugin) -> str:
    record = Path(plugin.location) / "RECORD"
    if record.is_file():
        return hashlib.sha256(record.read_bytes()).hexdigest()
    if Path(plugin.location).parent.is_file():
        content = read_member(plugin.location, "RECORD")
        return hashlib.sha256(content).hexdigest() if content is not None else ""
    return ""


def write_lock(file: Path, plugins: Sequence[LockedPlugin]) -> None:
    """Write the lock, whole or not at all."""
    content = {
        "format": FORMAT_VERSION,
        "hook_api": HOOK_API_VERSION,
        "plugins": [asdict(plugin) for plugin in plugins],
    }
    partial = file.with_name(file.name + ".partial")
    partial.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    os.replace(partial, file)  # noqa: PTH105 (the atomic call, by its own name)


def read_lock(file: Path) -> tuple[LockedPlugin, ...]:
    """The plugins of a lock. Raises RequestError when the file is missing, damaged or of another format version."""
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(f"cannot be read: {error.strerror}", where=str(file)) from error
    except ValueError as error:
        raise RequestError(f"is not JSON: {error}", where=str(file), mend="take the lock of a run's folder") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT_VERSION:
        found = content.get("format") if isinstance(content, dict) else type(content).__name__
        raise RequestError(f"has format {found!r}, expected {FORMAT_VERSION}", where=str(file))
    try:
        return tuple(LockedPlugin(**entry) for entry in content["plugins"])
    except (KeyError, TypeError) as error:
        raise RequestError(f"lacks a field or has an unknown one: {error}", where=str(file)) from error


def compare_locks(expected: Sequence[LockedPlugin], found: Sequence[LockedPlugin]) -> list[Problem]:
    """How the plugins that are here differ from those of a lock; nothing when they are the same.

    An editable plugin's RECORD says nothing of its code, so only its version is compared.
    """
    problems = []
    here = {(plugin.distribution, plugin.name): plugin for plugin in found}
    for wanted in expected:
        plugin = here.pop((wanted.distribution, wanted.name), None)
        label = f"{wanted.name} ({wanted.distribution or 'research code'})"
        if plugin is None:
            problems.append(Problem(f"plugin {label} {wanted.version} of the lock is not enabled here"))
        elif plugin.version != wanted.version:
            problems.append(Problem(f"plugin {label} is {plugin.version} here, {wanted.version} in the lock"))
        elif plugin.record != wanted.record and not (plugin.editable and plugin.distribution):
            problems.append(Problem(f"plugin {label} {wanted.version} has other files here than in the lock"))
    problems += [Problem(f"plugin {plugin.name} {plugin.version} is not in the lock") for plugin in here.values()]
    if [(p.distribution, p.name) for p in expected] != [(p.distribution, p.name) for p in found] and not problems:
        problems.append(Problem("the plugins are enabled in another order than in the lock"))
    return problems
