"""Which plugins are installed: read from the metadata of distributions, importing nothing of them.

The standard library's reader takes several times longer and lets one damaged distribution hide all others, so the scan
reads `entry_points.txt` itself, distribution by distribution. What is damaged becomes a warning that names it. As for
imports, the first distribution of a name on `sys.path` wins; the later ones are kept, marked as shadowed.

This file serves `miles plugins list`, so it imports nothing but a little of the standard library: its records are
named tuples because `dataclasses` alone would cost as much as the whole scan does.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from miles_core.host.found import (
    BAD_LINE,
    NO_METADATA,
    NO_NAME,
    UNREADABLE,
    Damage,
    Damaged,
    Found,
    decoded,
    distributions,
)
from miles_core.host.metadata import (
    Headers,
    is_editable,
    malformed_place,
    normalise,
    read_headers,
    read_sections,
)

PLUGINS_GROUP = "miles.plugins"
PROVIDES_GROUP = "miles.provides"
HOOK_API_GROUP = "miles.hook_api"


class InstalledPlugin(NamedTuple):
    """One entry point of the group `miles.plugins`.

    name          the entry point's name: what a recipe's `plugins:` says
    distribution  PEP 503 normalised
    module        the entry point's value: `package.module` or `package.module:attr`
    provides      what the distribution declares to provide, each `kind.name`
    requires      its `Requires-Dist` lines
    location      its metadata folder (or `archive.whl/name.dist-info`)
    editable      installed from a source folder that may change
    shadowed_by   location of the distribution of the same name that wins ("" when this one does)
    homepage      address of its home page, issues of its tracker, as its metadata says
    hook_api      the hook API that it was written for, as declared: `"1.0" = "package"` in the group `miles.hook_api`
                  ("" when undeclared; build tools refuse a number as an entry point's value, so it is the name)
    """

    name: str
    distribution: str
    version: str
    module: str
    provides: tuple[str, ...] = ()
    summary: str = ""
    requires: tuple[str, ...] = ()
    location: str = ""
    editable: bool = False
    shadowed_by: str = ""
    hook_api: str = ""
    homepage: str = ""
    issues: str = ""

    @property
    def title(self) -> str:
        """How messages name it: entry point, distribution, version."""
        return f"{self.name} ({self.distribution} {self.version})" if self.distribution else self.name


class Index(NamedTuple):
    """What a scan found. `shadowed` are plugins that cannot be imported because another distribution of their name
    comes earlier on the path; `warnings` are sentences about damaged or shadowed distributions; `versions` are those
    of every distribution, by normalised name ("" when only its metadata could tell); `damaged` are distributions whose
    metadata is not sound, plugins or not."""

    plugins: tuple[InstalledPlugin, ...]
    shadowed: tuple[InstalledPlugin, ...] = ()
    warnings: tuple[str, ...] = ()
    versions: Mapping[str, str] = {}
    damaged: tuple[Damage, ...] = ()


class _Remarks:
    """What a scan notes beside the plugins."""

    def __init__(self) -> None:
        self.warnings: list[str] = []
        self.damaged: list[Damage] = []

    def damage(self, found: Found, fault: str, text: str, file: str = "", line: int = 0) -> None:
        damage = Damage(found.name, found.location, fault, text, file, line, _seeming_plugin(found))
        self.damaged.append(damage)
        self.warnings.append(str(damage))


def scan(path: Sequence[str] | None = None) -> Index:
    """The plugins on `path` (`sys.path` when None), by distribution and name. Never raises for what it finds there."""
    winners: dict[str, Found] = {}
    found: dict[str, tuple[InstalledPlugin, ...]] = {}
    versions: dict[str, str] = {}
    shadowed: list[InstalledPlugin] = []
    remarks = _Remarks()
    for candidate in distributions(sys.path if path is None else path, remarks.warnings):
        try:
            plugins = _read(candidate, remarks)
        except Damaged as error:
            remarks.damage(candidate, error.fault, error.text, error.file, error.line)
            continue
        except (OSError, ValueError) as error:
            remarks.damage(candidate, UNREADABLE, f"is unreadable ({error})")
            continue
        name = plugins[0].distribution if plugins else candidate.name
        winner = winners.setdefault(name, candidate)
        versions[name] = versions.get(name) or (plugins[0].version if plugins else candidate.version)
        if winner is candidate:
            found[name] = plugins
        elif _same_installation(winner, candidate, found[name], plugins):
            found[name] = plugins if winner.is_egg else found[name]
        elif plugins:
            shadowed += [plugin._replace(shadowed_by=winner.location) for plugin in plugins]
            remarks.warnings.append(_shadow_sentence(name, winner, found[name], candidate, plugins[0].version))
    active = sorted((plugin for each in found.values() for plugin in each), key=lambda p: (p.distribution, p.name))
    return Index(tuple(active), tuple(shadowed), tuple(remarks.warnings), versions, tuple(remarks.damaged))


def _seeming_plugin(found: Found) -> str:
    """The name of the plugin that a damaged distribution seems to hold, as far as its bytes can be read."""
    try:
        raw = found.read("entry_points.txt") or b""
    except (OSError, ValueError):
        raw = b""
    names = read_sections(raw.decode("utf-8", "replace"), (PLUGINS_GROUP,))[PLUGINS_GROUP]
    convention = "miles-plugin-"
    return next(iter(names), found.name.removeprefix(convention) if found.name.startswith(convention) else "")


def _read(found: Found, remarks: _Remarks) -> tuple[InstalledPlugin, ...]:
    """The plugins of one distribution. Metadata beyond the entry points is read only when there are any."""
    raw = found.read("entry_points.txt")
    if not raw:
        if raw is None and not found.is_egg and not found.zipped and not found.has("METADATA"):
            remarks.damage(found, NO_METADATA, "has no METADATA: a broken installation")
        return ()
    text = decoded(raw, "entry_points.txt")
    if bad := malformed_place(text):
        line, content = bad
        sentence = f"entry_points.txt:{line} has the malformed line {content!r}"
        remarks.damage(found, BAD_LINE, sentence, "entry_points.txt", line)
    if PLUGINS_GROUP not in text:
        return ()
    sections = read_sections(text, (PLUGINS_GROUP, PROVIDES_GROUP, HOOK_API_GROUP))
    headers = _headers(found)
    editable = found.is_egg or is_editable(found.read("direct_url.json"))
    return tuple(
        InstalledPlugin(
            name=name,
            distribution=normalise(headers.name or found.name),
            version=headers.version,
            module=re.sub(r"\s|\[.*", "", value),
            provides=_declared(sections, PROVIDES_GROUP, value),
            summary=headers.summary,
            requires=headers.requires,
            location=found.location,
            editable=editable,
            hook_api=", ".join(_declared(sections, HOOK_API_GROUP, value)),
            homepage=headers.homepage,
            issues=headers.issues,
        )
        for name, value in sections[PLUGINS_GROUP].items()
    )


def _declared(sections: Mapping[str, Mapping[str, str]], group: str, module: str) -> tuple[str, ...]:
    """What a group says of the plugin in `module`: all of it, or what names its module or package if there are
    several plugins."""
    if len(sections[PLUGINS_GROUP]) == 1:
        return tuple(sections[group])
    return tuple(name for name, home in sections[group].items() if f"{module}.".startswith(f"{home}."))


def _headers(found: Found) -> Headers:
    file = "PKG-INFO" if found.is_egg else "METADATA"
    raw = found.read(file)
    if not raw:
        raise Damaged(NO_METADATA if raw is None else NO_NAME, f"{file} is missing or empty", file)
    headers = read_headers(decoded(raw, file))
    if found.is_egg and not headers.requires:
        requires = decoded(found.read("requires.txt") or b"", "requires.txt")
        plain = requires.split("[", 1)[0]  # what follows belongs to extras
        return headers._replace(requires=tuple(line.strip() for line in plain.splitlines() if line.strip()))
    return headers


def _same_installation(
    first: Found, second: Found, ours: tuple[InstalledPlugin, ...], theirs: tuple[InstalledPlugin, ...]
) -> bool:
    """An editable installation leaves an egg-info beside its source and a dist-info in site-packages: one thing."""
    if first.is_egg == second.is_egg:
        return False
    return [(p.name, p.module, p.version, p.provides) for p in ours] == [
        (p.name, p.module, p.version, p.provides) for p in theirs
    ]


def _shadow_sentence(name: str, winner: Found, ours: tuple[InstalledPlugin, ...], loser: Found, version: str) -> str:
    has = f"version {ours[0].version}" if ours else "without plugins"
    return f"{name}: {winner.location} ({has}) comes first on the path and shadows {loser.location} (version {version})"
