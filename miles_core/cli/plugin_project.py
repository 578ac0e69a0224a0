"""`miles plugins enable` and `disable`: what miles.toml in the working folder says; nothing is imported."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from miles_core.cli.output import remark, say, say_json
from miles_core.errors import EXIT_DONE, PluginError, RequestError
from miles_core.host import names
from miles_core.host.project import FILE, entries_of
from miles_core.host.project_edit import changed
from miles_core.host.scan import Index, InstalledPlugin, scan
from miles_core.observe.atomic import replacing


def enable_plugin(name: str, *, as_json: bool) -> int:
    """Put the plugin into `enable` and out of `disable`.

    Raises RequestError for one that is not installed, PluginError when the name is ambiguous.
    """
    index = scan()
    found = names.matching(index.plugins, name)
    if not found:
        raise RequestError([names.unknown(index, name)])
    if len(found) > 1:
        raise PluginError([names.ambiguous(name, found)])
    _refuse_core(found)
    return _write(names.clear_name(index, found[0]), found, "enable", as_json)


def disable_plugin(name: str, *, as_json: bool) -> int:
    """Put the plugin into `disable` and out of `enable`. One that is not installed may be named: it stays out when it
    comes."""
    index = scan()
    found = names.matching(index.plugins, name)
    _refuse_core(found)
    if not found:
        near = names.nearest(index, name)
        hint = f"; did you mean {near[0].name!r}?" if near else ""
        remark(f"warning: plugin {name!r} is not installed{hint}")
    written = names.clear_name(index, found[0]) if len(found) == 1 else name
    return _write(written, found, "disable", as_json)


def _refuse_core(found: list[InstalledPlugin]) -> None:
    if any(map(names.is_core, found)):
        raise RequestError("the core's own plugin is always enabled", mend="name another plugin")


def _write(name: str, found: list[InstalledPlugin], key: str, as_json: bool) -> int:
    try:
        with _alone():
            return _change(Path(FILE).resolve(), name, found, key, as_json)
    except OSError as error:
        raise RequestError(f"cannot be changed: {error.strerror or error}", where=FILE) from error


@contextmanager
def _alone() -> Iterator[None]:
    """One change at a time in this folder, so that none is lost."""
    folder = os.open(".", os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def _change(file: Path, name: str, found: list[InstalledPlugin], key: str, as_json: bool) -> int:
    try:
        before = file.read_text(encoding="utf-8") if file.exists() else ""
    except UnicodeDecodeError as error:
        raise RequestError(f"cannot be read: {error}", where=FILE) from error
    entries = entries_of(before)
    same = tuple(dict.fromkeys(each.name for each in entries if _means(each.name, name, found)))
    other = "disable" if key == "enable" else "enable"
    text = changed(before, other, remove=same)
    text = changed(text, key, add=name, remove=tuple(each for each in same if each != name))
    if text != before:
        with replacing(file) as draft:
            draft.write_text(text, encoding="utf-8")
            if file.exists():
                draft.chmod(file.stat().st_mode)
    if as_json:
        say_json({"plugin": name, "file": str(file), key: True, "changed": text != before})
    else:
        say(f"{FILE}: {name} is {key}d here{'' if text != before else ' already'}")
    return EXIT_DONE


def _means(entry: str, name: str, found: list[InstalledPlugin]) -> bool:
    """Whether an entry of the file means the plugin, in whatever spelling."""
    if found:
        return bool(names.matching(Index(tuple(found)).plugins, entry))
    return names.short_name(entry) == names.short_name(name)
