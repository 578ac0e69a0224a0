"""The project file `miles.toml` in the working folder: plugins that are enabled or disabled for every recipe run there.

    [plugins]
    enable = ["wandb"]
    disable = ["noisy"]

Other tables are other tools' and left alone.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any, NamedTuple

from miles_core.errors import Problem, RequestError

FILE = "miles.toml"
KEYS = ("enable", "disable")


class ProjectEntry(NamedTuple):
    """One name of the file; `where` is `miles.toml:LINE`."""

    name: str
    enables: bool
    where: str


def read_project(file: Path) -> list[ProjectEntry]:
    """The entries in order; none when there is no such file. Raises RequestError with everything that is wrong."""
    try:
        text = file.read_text(encoding="utf-8")
    except FileNotFoundError:
        return []
    except (OSError, UnicodeDecodeError) as error:
        raise RequestError(f"cannot be read: {error}", where=file.name) from error
    return entries_of(text, file.name)


def entries_of(text: str, name: str = FILE) -> list[ProjectEntry]:
    """The entries of a project file's text."""
    import tomllib

    try:
        table = tomllib.loads(text).get("plugins", {})
    except tomllib.TOMLDecodeError as error:
        raise RequestError(f"is not TOML: {error}", where=name, mend="mend it, or run with --no-plugins") from error
    problems = _faults(table, text, name)
    if problems:
        raise RequestError(problems)
    return [
        ProjectEntry(each, key == "enable", _place(text, key, each, name))
        for key in KEYS
        for each in table.get(key, ())
    ]


def _faults(table: Any, text: str, name: str) -> list[Problem]:
    if not isinstance(table, dict):
        return [Problem("plugins is no table", name, "write [plugins] and below it enable = [...], disable = [...]")]
    problems = []
    for key, value in table.items():
        if key not in KEYS:
            near = difflib.get_close_matches(key, KEYS, n=1)
            mend = f"did you mean {near[0]}?" if near else f"known: {', '.join(KEYS)}"
            problems.append(Problem(f"plugins.{key} is not a known key", _place(text, key, "", name), mend))
        elif not isinstance(value, list) or not all(isinstance(each, str) and each.strip() for each in value):
            what = f"plugins.{key} is not a list of names"
            problems.append(Problem(what, _place(text, key, "", name), f'write {key} = ["name"]'))
        else:
            problems += [
                Problem(
                    f"plugins.{key} has {each!r}", _place(text, key, each, name), "list it in `disable` without no:"
                )
                for each in value
                if each.startswith("no:")
            ]
    return problems


def _place(text: str, key: str, value: str, name: str) -> str:
    """The line of a value in [plugins], or of its key; without a line when the file writes it in an unusual form."""
    table, inside, found = "", False, 0
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[([^\[\]]+)\]\s*(?:#.*)?$", line)
        if header:
            table, inside = header.group(1).strip(), False
            continue
        start = re.match(r"""\s*(?:plugins\s*\.\s*)?["']?([\w-]+)["']?\s*=""", line)
        if start:
            inside = start.group(1) == key and table in ("plugins", "")
            found = number if inside else found
        if inside and (not value or re.search(rf"""["']{re.escape(value)}["']""", line)):
            return f"{name}:{number}"
    return f"{name}:{found}" if found else name
