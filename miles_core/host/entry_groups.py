"""Distributions that are plugins by their name or entry points, and that no scan takes for one: what they lack."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator, Sequence

from miles_core.host.found import Damaged, Found, distributions
from miles_core.host.metadata import normalise
from miles_core.host.names import NAMING_CONVENTION
from miles_core.host.scan import HOOK_API_GROUP, PLUGINS_GROUP, PROVIDES_GROUP, Index

GROUPS = (PLUGINS_GROUP, PROVIDES_GROUP, HOOK_API_GROUP)


def no_entry_point(distribution: str, name: str, path: Sequence[str] | None = None) -> tuple[str, str]:
    """What is wrong with an installed distribution that has no plugin, and how to mend it."""
    groups, version = [], ""
    for found in distributions(sys.path if path is None else path, []):
        if normalise(found.name) == distribution:
            groups, version = _groups(found), found.version
            break
    title = f"{distribution} {version}".strip()
    near = difflib.get_close_matches(PLUGINS_GROUP, [each for each in groups if each not in GROUPS], n=1)
    what = f"{title} is installed, but has no entry point in the group {PLUGINS_GROUP!r}"
    has = f" (it has the group {near[0]!r})" if near else ""
    section = f'[project.entry-points."{PLUGINS_GROUP}"]'
    line = f'{name} = "{distribution.replace("-", "_")}.plugin"'
    wanted = f"rename the group to {section}" if near else f"write {section} with {line}"
    return what + has, f"in its pyproject.toml {wanted}, then install it again"


def without_plugin(index: Index, path: Sequence[str] | None = None) -> Iterator[tuple[str, str, str]]:
    """Name, fault and mend of each installed distribution that means to be a plugin and is none: it is called like one,
    or has a group of entry points whose name is close to ours."""
    known = {plugin.distribution for plugin in (*index.plugins, *index.shadowed)}
    known |= {damage.distribution for damage in index.damaged}
    for found in distributions(sys.path if path is None else path, []):
        name = normalise(found.name)
        if name in known:
            continue
        known.add(name)
        alike = difflib.get_close_matches(PLUGINS_GROUP, _groups(found), n=1, cutoff=0.8)
        if name.startswith(NAMING_CONVENTION) or alike or PROVIDES_GROUP in _groups(found):
            short = name.removeprefix(NAMING_CONVENTION)
            yield (short, *no_entry_point(name, short, path))


def _groups(found: Found) -> list[str]:
    """The groups in entry_points.txt; none when it cannot be read, which is told elsewhere."""
    try:
        raw = found.read("entry_points.txt") or b""
    except (OSError, ValueError, Damaged):
        return []
    lines = (line.strip() for line in raw.decode("utf-8", "replace").splitlines())
    return [line[1:-1].strip() for line in lines if line.startswith("[") and line.endswith("]")]
