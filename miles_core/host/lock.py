"""plugins.lock: the set of plugins that a run used, exactly enough to refuse another one."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

from miles_core.errors import RequestError
from miles_core.hookspecs import HOOK_API_VERSION
from miles_core.host.scan import InstalledPlugin
from miles_core.host.source import code_digest, package_folder, record_hash, working_tree
from miles_core.host.verify import installed_digest

FORMAT_VERSION = 2
READABLE = (1, 2)


@dataclass(frozen=True, slots=True)
class LockedPlugin:
    """One enabled plugin as it was: the lines of `plugins.lock`.

    record    sha256 of the wheel's RECORD file ("" where there is none); of research code, of its source file
    editable  installed from a source folder: `record` says nothing of its code, `code` and `commit` do
    code      sha256 over the files of an editable plugin's package, or over those that a wheel installed, as they are
              ("" in older locks of wheels, and of research code)
    commit    what its git checkout was at ("" without git); `dirty`: its package differed from that
    options   sha256 of the options that the recipe gives to the plugin's components ("" when it uses none)
    hook_api  the hook API that the plugin declares, "" when it declares none

    Research code has an empty distribution. Format 1 has only name, distribution, version, record and editable.
    """

    name: str
    distribution: str
    version: str
    record: str
    editable: bool = False
    code: str = ""
    commit: str = ""
    dirty: bool = False
    options: str = ""
    hook_api: str = ""

    @property
    def label(self) -> str:
        """How messages name it."""
        return f"{self.name} ({self.distribution or 'research code'})"


@dataclass(frozen=True, slots=True)
class Lock:
    """A lock as it was read: the plugins in the order of enabling, the hook API of the core that enabled them."""

    plugins: tuple[LockedPlugin, ...]
    hook_api: str
    format: int = FORMAT_VERSION


def lock_plugin(plugin: InstalledPlugin) -> LockedPlugin:
    """The line of an installed plugin, without what `lock_code` adds."""
    record = record_hash(plugin)
    return LockedPlugin(
        plugin.name, plugin.distribution, plugin.version, record, plugin.editable, hook_api=plugin.hook_api
    )


def lock_source(name: str, file: Path | None) -> LockedPlugin:
    """The line of research code that a recipe names as `module:attr`."""
    digest = hashlib.sha256(file.read_bytes()).hexdigest() if file is not None and file.is_file() else ""
    return LockedPlugin(name, distribution="", version="", record=digest, editable=True)


def lock_options(line: LockedPlugin, options: Iterable[tuple[str, Mapping[str, Any]]]) -> LockedPlugin:
    """The line with the digest of what the recipe says: (`kind.name`, options as JSON data) of each of its components,
    in any order."""
    texts = sorted(json.dumps([name, dict(values)], sort_keys=True) for name, values in options)
    digest = hashlib.sha256("\n".join(texts).encode()).hexdigest() if texts else ""
    return replace(line, options=digest)


def lock_code(lines: Sequence[LockedPlugin], plugins: Sequence[InstalledPlugin]) -> tuple[LockedPlugin, ...]:
    """The lines with what can be told of the code of each: its digest and, of an editable one, its commit and whether
    it was changed.

    Reads every file and asks git, so it is called once, when a run starts.
    """
    packaged = {(each.distribution, each.name): each for each in plugins if each.distribution}
    return tuple(_with_code(line, packaged.get((line.distribution, line.name))) for line in lines)


def _with_code(line: LockedPlugin, plugin: InstalledPlugin | None) -> LockedPlugin:
    if plugin is None:
        return line
    if not plugin.editable:
        return replace(line, code=installed_digest(plugin))
    folder, tree = package_folder(plugin), working_tree(plugin)
    code = code_digest(Path(folder)) if folder else ""
    return replace(line, code=code, commit=tree.commit if tree else "", dirty=tree is not None and bool(tree.changed))


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


def read_lock(file: Path) -> Lock:
    """A lock of this or an older format. Raises RequestError when the file is missing, damaged or of another one."""
    try:
        content: Any = json.loads(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(f"cannot be read: {error.strerror}", where=str(file)) from error
    except ValueError as error:
        raise RequestError(f"is not JSON: {error}", where=str(file), mend="take the lock of a run's folder") from error
    found = content.get("format") if isinstance(content, dict) else type(content).__name__
    if found not in READABLE:
        expected = " or ".join(map(str, READABLE))
        raise RequestError(
            f"has format {found!r}, expected {expected}", where=str(file), mend="read it with the Miles that wrote it"
        )
    try:
        plugins = tuple(_line(entry) for entry in content["plugins"])
        return Lock(plugins, str(content["hook_api"]), int(content["format"]))
    except (KeyError, TypeError) as error:
        raise RequestError(f"lacks a field or has an unknown one: {error}", where=str(file)) from error


def _line(entry: Mapping[str, Any]) -> LockedPlugin:
    line = LockedPlugin(**entry)
    for field in fields(line):
        value = getattr(line, field.name)
        if not isinstance(value, bool if field.name in ("editable", "dirty") else str):
            raise TypeError(f"{field.name} is {value!r}")
    return line
