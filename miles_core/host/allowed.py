"""The allow-list of a shared machine: which plugins may be imported at all, whoever enables them.

The variable MILES_PLUGINS_ALLOWED names a TOML file:

    [allowed]
    "miles-plugin-torch" = "*"                # any version
    "miles-plugin-demo" = "sha256:9f86d0…"    # only with this RECORD, as `sha256sum …dist-info/RECORD` prints it
    milesfile = "*"                           # prototypes beside recipes; or the sha256 of one file

A plugin that is enabled and not listed is refused with exit code 3, and nothing of it is imported. The core is always
allowed. A hash pins the list of the wheel's files and their checksums, and the files themselves are compared with it
before any is imported. An editable installation has no such list of its code, so only "*" admits it. The list guards
against mistakes, not against a user who can change the variable: code that a recipe names as `module:attr` is no
plugin.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from miles_core.errors import Problem, RequestError
from miles_core.host.archive import read_member
from miles_core.host.metadata import normalise
from miles_core.host.scan import InstalledPlugin
from miles_core.host.verify import verify

VARIABLE = "MILES_PLUGINS_ALLOWED"
_ANY, _HASH = "*", "sha256:"


@dataclass(frozen=True, slots=True)
class AllowList:
    """Distributions (PEP 503 normalised) and what is admitted of each: `*` or `sha256:<hex>`."""

    file: str
    allowed: Mapping[str, str]

    def objection(self, plugin: InstalledPlugin) -> Problem | None:
        """Why the plugin may not be imported; None when it may."""
        name = plugin.distribution or plugin.name
        wanted = self.allowed.get(name)
        if wanted == _ANY:
            return None
        if wanted is None:
            what = f"plugin {plugin.title} is not on the allow-list"
            return Problem(what, self.file, f'ask whoever keeps it to add "{name}" = "*" to [allowed]')
        if plugin.editable and plugin.distribution:
            what = f"plugin {plugin.title} is editable, so the hash on the allow-list says nothing of its code"
            return Problem(what, self.file, f"install {name} from a wheel")
        found = _digest(plugin)
        if f"{_HASH}{found}" == wanted.lower():
            return self._altered(plugin) if plugin.distribution else None
        what = f"plugin {plugin.title} has another hash than the allow-list's: {found or 'none'}"
        return Problem(what, self.file, f"install the admitted {name}, or ask whoever keeps the list")

    def _altered(self, plugin: InstalledPlugin) -> Problem | None:
        """The files of a plugin whose RECORD is admitted, against that RECORD."""
        said = verify(plugin).sentence
        if not said:
            return None
        what = f"plugin {plugin.title} has the admitted RECORD but other files: {said}"
        return Problem(what, self.file, f"pip install --force-reinstall {plugin.distribution}=={plugin.version}")


def read_allowed(environ: Mapping[str, str]) -> AllowList | None:
    """The allow-list that the environment names; None when it names none. Raises RequestError when it cannot be read:
    a list that is there but not understood admits nothing."""
    name = environ.get(VARIABLE, "")
    if not name:
        return None
    import tomllib

    try:
        data = tomllib.loads(Path(name).read_text(encoding="utf-8"))
    except OSError as error:
        raise RequestError(f"{VARIABLE} names a file that cannot be read: {error.strerror}", where=name) from error
    except ValueError as error:
        raise RequestError(f"{VARIABLE} names a file that is not TOML: {error}", where=name) from error
    table = data.get("allowed")
    if not isinstance(table, dict):
        raise RequestError("the allow-list has no table [allowed]", where=name, mend='write [allowed] and "name" = "*"')
    wrong = [key for key, value in table.items() if not _is_rule(value)]
    if wrong:
        problems = [
            Problem(f"{key} = {table[key]!r} is no rule", name, 'write "*", or "sha256:" and 64 hex digits')
            for key in wrong
        ]
        raise RequestError(problems)
    return AllowList(name, {normalise(key): value for key, value in table.items()})


def _is_rule(value: object) -> bool:
    if not isinstance(value, str):
        return False
    digits = value.removeprefix(_HASH)
    return value == _ANY or (
        value.startswith(_HASH) and len(digits) == 64 and set(digits.lower()) <= set("0123456789abcdef")
    )


def _digest(plugin: InstalledPlugin) -> str:
    """The sha256 of the RECORD (of the file, for a milesfile); "" when there is none."""
    location = Path(plugin.location)
    file = location / "RECORD" if plugin.distribution else location
    if file.is_file():
        return hashlib.sha256(file.read_bytes()).hexdigest()
    content = read_member(plugin.location, "RECORD") if location.parent.is_file() else None
    return hashlib.sha256(content).hexdigest() if content is not None else ""
