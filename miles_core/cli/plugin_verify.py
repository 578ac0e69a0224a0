"""`miles plugins verify`: are the files of installed plugins the ones that their wheels recorded?"""

from __future__ import annotations

from collections.abc import Sequence

from miles_core.cli.output import say, say_json
from miles_core.cli.plugin_page import find_plugins
from miles_core.errors import EXIT_DONE, EXIT_FAILED
from miles_core.host.facts import SHADOWED, facts_of
from miles_core.host.scan import InstalledPlugin, scan
from miles_core.host.verify import Verification, verify


def verify_plugins(names: Sequence[str], *, as_json: bool) -> int:
    """Print what differs; the exit code is 1 when something does.

    Several plugins of one distribution are compared once. Raises RequestError for a name that is not installed.
    """
    index = scan()
    rows = find_plugins(index, names, facts_of(index, {}))
    found = [verify(plugin) for plugin in _distributions([row.plugin for row in rows if row.status != SHADOWED])]
    if as_json:
        say_json({"plugins": [_facts(each) for each in found]})
    else:
        for each in found:
            _say(each)
    return EXIT_FAILED if any(each.differs for each in found) else EXIT_DONE


def _distributions(plugins: Sequence[InstalledPlugin]) -> list[InstalledPlugin]:
    return list({plugin.location: plugin for plugin in reversed(plugins)}.values())[::-1]


def _facts(found: Verification) -> dict[str, object]:
    return {
        "name": found.plugin.name,
        "distribution": found.plugin.distribution,
        "version": found.plugin.version,
        "editable": found.plugin.editable,
        "location": found.plugin.location,
        "differs": found.differs,
        "compared": found.compared,
        "missing": list(found.missing),
        "altered": list(found.altered),
        "extra": list(found.extra),
        "remark": found.remark or None,
        "commit": found.commit or None,
        "changed": list(found.changed),
    }


def _say(found: Verification) -> None:
    title = f"{found.plugin.distribution} {found.plugin.version}"
    if found.remark:
        say(f"{title}: {found.remark}")
        if found.commit:
            say(f"  commit {found.commit}{', uncommitted changes in its package:' if found.changed else ', unchanged'}")
    elif not found.differs:
        say(f"{title}: {found.compared} files are as recorded")
    else:
        say(f"{title}: differs from its RECORD; pip install --force-reinstall {found.plugin.distribution} restores it")
    for label, files in (
        ("missing", found.missing),
        ("altered", found.altered),
        ("extra", found.extra),
        ("changed", found.changed),
    ):
        for file in files:
            say(f"  {label:8}{file}")
