"""What plugins declare to provide, in the group `miles.provides`: `kind.name`, each of a kind that there is."""

from __future__ import annotations

import difflib

from miles_core.contracts.component import KINDS
from miles_core.host.scan import PROVIDES_GROUP, InstalledPlugin


def unknown_kinds(plugin: InstalledPlugin) -> list[tuple[str, str]]:
    """What is wrong with each line that names no kind, and how to mend it."""
    faults = []
    for line in plugin.provides:
        kind, dot, name = line.partition(".")
        if kind in KINDS and name:
            continue
        near = difflib.get_close_matches(kind, KINDS, n=1)
        what = f"there is no kind {kind!r}" if dot else "it has no kind"
        mend = f"write `{near[0]}.{name or 'NAME'}`" if near else f"the kinds are: {', '.join(KINDS)}"
        faults.append((f"{PROVIDES_GROUP} lists {line!r}, and {what}", f"{mend}, then install it again"))
    return faults


def silence_of(plugin: InstalledPlugin) -> str:
    """Why nobody can tell from its metadata what a plugin provides; "" when everybody can."""
    if not plugin.provides:
        return f"its {PROVIDES_GROUP} is empty"
    return "; ".join(what for what, _ in unknown_kinds(plugin))
