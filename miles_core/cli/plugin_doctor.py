"""`miles plugins doctor`: what is wrong with installed plugins, and with what stands in their way.

The exit code is 3 when a plugin has trouble, else 0: trouble of unrelated distributions and remarks are told, but they
are nobody's failure. With names, only what concerns these plugins is told, beside damaged metadata, which hits all.
Only plugins that are enabled here or named are imported, each in a process of its own; one that ends its process or
hangs is named like any other.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from miles_core.cli.output import remark, say, say_json
from miles_core.cli.plugin_list import project_choices
from miles_core.cli.plugin_page import find_plugins
from miles_core.errors import EXIT_DONE, EXIT_PLUGIN
from miles_core.host.diagnosis import (
    METADATA,
    SECTIONS,
    Trouble,
    in_sections,
    of_declarations,
    of_editable,
    of_extras,
    of_groups,
    of_kinds,
    of_loading,
    of_metadata,
    of_shadowing,
    of_versions,
)
from miles_core.host.facts import BROKEN, ENABLED, INCOMPATIBLE, SHADOWED, Facts, facts_of
from miles_core.host.probe import Probe, probe
from miles_core.host.scan import Index, scan

AT_ONCE = 2


def examine_plugins(names: Sequence[str], *, as_json: bool) -> int:
    """Print all that is wrong, section by section. Raises RequestError for names that are not installed."""
    index = scan()
    rows = find_plugins(index, names, facts_of(index, project_choices(index)))
    usable = [row for row in rows if row.status not in (BROKEN, INCOMPATIBLE, SHADOWED)]
    loadable = [row for row in usable if names or row.status == ENABLED]
    remark(f"importing {_counted(len(loadable), 'plugin')}, each in a process of its own")
    if len(loadable) < len(usable):
        left = ", ".join(row.plugin.name for row in usable if row not in loadable)
        remark(f"not enabled and not named, so not imported: {left}")
    with ThreadPoolExecutor(AT_ONCE) as pool:
        seen = list(pool.map(probe, [row.plugin for row in loadable]))
    found = in_sections(_troubles(index, rows, names, list(zip(loadable, seen, strict=True))))
    serious = [trouble for trouble in found if trouble.serious]
    if as_json:
        say_json(
            {
                "healthy": not serious,
                "plugins": [row.plugin.name for row in rows],
                "imported": {row.plugin.name: each.import_ms for row, each in zip(loadable, seen, strict=True)},
                "troubles": [trouble.to_json() for trouble in found],
            }
        )
    else:
        _say(found, len(rows))
    return EXIT_PLUGIN if serious else EXIT_DONE


def _troubles(
    index: Index, rows: Sequence[Facts], names: Sequence[str], probes: Sequence[tuple[Facts, Probe]]
) -> list[Trouble]:
    wanted = {row.plugin.name for row in rows}
    found = [*of_metadata(index), *of_shadowing(index, sys.path), *of_groups(index)]
    found = [each for each in found if not names or each.section == METADATA or each.plugin in wanted]
    told: set[str] = set()
    for row in rows:
        if row.status == SHADOWED:
            continue
        found += of_versions(row)
        if row.plugin.location not in told:
            found += of_extras(row.plugin, index.versions)
        told.add(row.plugin.location)
        found += of_editable(row.plugin) if row.status != BROKEN else ()
        found += of_kinds(row.plugin)
    for row, seen in probes:
        found += of_loading(row.plugin, seen)
        found += of_declarations(row.plugin, seen)
    return found


def _say(found: Sequence[Trouble], count: int) -> None:
    for section in SECTIONS:
        troubles = [trouble for trouble in found if trouble.section == section]
        if troubles:
            say(f"{section}:")
        for trouble in troubles:
            say(f"  {'trouble' if trouble.serious else 'remark '} {trouble.what}")
            if trouble.mend:
                say(f"          mend: {trouble.mend}")
    serious = sum(trouble.serious for trouble in found)
    counts = [(count, "plugin"), (serious, "trouble"), (len(found) - serious, "remark")]
    say(", ".join(_counted(number, word) for number, word in counts))


def _counted(number: int, word: str) -> str:
    return f"{number} {word}" if number == 1 else f"{number} {word}s"
