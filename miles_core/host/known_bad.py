"""Versions of plugins that Miles refuses to import, since they are known to harm a run."""

from __future__ import annotations

from collections.abc import Mapping

from miles_core.errors import Problem
from miles_core.host.scan import InstalledPlugin

KNOWN_BAD: Mapping[str, tuple[str, str, str]] = {}
"""Distribution (PEP 503 normalised) -> (PEP 440 specifier of the bad versions, what they do, where to read more).
An entry is added by a release of miles-core, for a defect that loses data or hides itself."""


def known_fault(plugin: InstalledPlugin, known_bad: Mapping[str, tuple[str, str, str]] = KNOWN_BAD) -> Problem | None:
    """Why this version must not be imported; None for almost every plugin. A version that cannot be read counts as
    bad: nobody can say that it is another one."""
    if plugin.distribution not in known_bad:
        return None
    from packaging.specifiers import SpecifierSet
    from packaging.version import InvalidVersion, Version

    specifier, reason, url = known_bad[plugin.distribution]
    try:
        bad = SpecifierSet(specifier).contains(Version(plugin.version), prereleases=True)
    except InvalidVersion:
        bad = True
    if not bad:
        return None
    return Problem(
        f"plugin {plugin.title} is refused: {plugin.distribution}{specifier} is known to be bad: {reason} ({url})",
        where=plugin.location,
        mend=f"pip install --upgrade {plugin.distribution}",
    )
