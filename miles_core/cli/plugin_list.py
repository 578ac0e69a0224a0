"""`miles plugins list`: what is installed, from its metadata alone; no plugin is imported."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from miles_core.cli.output import flush, remark, say, say_json, table
from miles_core.host.facts import ENABLED, SHADOWED, Choice, Facts, facts_of, is_core
from miles_core.host.scan import Index, InstalledPlugin, scan
from miles_core.host.source import head_commit, record_hash, source_folder


def list_plugins(
    *, everything: bool = False, enabled: bool = False, requirements: bool = False, as_json: bool = False
) -> int:
    """Print every installed plugin and, on standard error, what the scan found amiss."""
    index = scan()
    rows = facts_of(index, project_choices(index))
    for warning in index.warnings:
        remark(f"warning: {warning}")
    if enabled:
        rows = tuple(row for row in rows if row.status == ENABLED and not is_core(row.plugin))
    if requirements:
        lines = requirement_lines(rows)
        if as_json:
            say_json({"requirements": lines})
        else:
            for line in lines:
                say(line)
    elif as_json:
        say_json(
            {
                "plugins": [plugin_json(row) for row in rows if row.status != SHADOWED],
                "shadowed": [plugin_json(row) for row in rows if row.status == SHADOWED],
                "warnings": list(index.warnings),
            }
        )
    else:
        _say_table(rows, everything, "no plugin is enabled" if enabled else "no plugin is installed")
    flush()
    return 0


def project_choices(index: Index) -> Mapping[str, Choice]:
    """What this folder's miles.toml and MILES_PLUGINS come to: `distribution:name` -> what was decided.

    Deciding costs more than the rest of a listing, so it is left out where nobody says anything.
    """
    said = {"MILES_PLUGINS", "MILES_PLUGINS_ALLOWED"} & os.environ.keys()
    if not said and not os.path.exists("miles.toml"):  # noqa: PTH110 (pathlib costs start-up)
        return {}
    from pathlib import Path

    from miles_core.errors import MilesError
    from miles_core.host.decide import decide
    from miles_core.host.request import read_request

    try:
        request = read_request((), no_plugins=False, environ=os.environ, folder=Path.cwd())
    except MilesError as error:
        for problem in error.problems:
            remark(f"warning: {problem}")
        return {}
    return {
        f"{verdict.plugin.distribution}:{verdict.plugin.name}": Choice(
            verdict.status, "; ".join(problem.what for problem in verdict.problems)
        )
        for verdict in decide(index, request).verdicts
        if verdict.plugin is not None
    }


def requirement_lines(rows: Sequence[Facts]) -> list[str]:
    """One line for `pip install -r` for each distribution, each with its exact version or source."""
    lines: dict[str, str] = {}
    for row in rows:
        plugin = row.plugin
        if row.status == SHADOWED or not plugin.version:
            continue
        source = source_folder(plugin)
        commit = head_commit(source) if source else ""
        line = (
            f"-e {source}{f'  # {commit}' if commit else ''}" if source else f"{plugin.distribution}=={plugin.version}"
        )
        lines[plugin.distribution] = line
    return list(lines.values())


def plugin_json(row: Facts) -> dict[str, object]:
    """One plugin as JSON data."""
    plugin, checked = row.plugin, row.checked
    source = source_folder(plugin)
    current = checked if checked is not None and checked.current else None
    stale = checked if current is None else None
    return {
        "name": plugin.name,
        "distribution": plugin.distribution,
        "version": plugin.version,
        "status": row.status,
        "error": row.error or None,
        "module": plugin.module,
        "provides": list(plugin.provides),
        "requires": [state._asdict() for state in row.requirements],
        "hook_api": plugin.hook_api or None,
        "checked_hook_api": current.hook_api if current else None,
        "grade": (current.grade or None) if current else None,
        "evidence": dict(current.evidence) if current else {},
        "stale_record": {"version": stale.version, "grade": stale.grade or None} if stale else None,
        "location": plugin.location,
        "editable": plugin.editable,
        "source": source or None,
        "commit": (head_commit(source) or None) if source else None,
        "record_sha256": (record_hash(plugin) or None) if plugin.location else None,
        "shadowed": list(row.shadows),
        "shadowed_by": plugin.shadowed_by,
        "summary": plugin.summary,
        "homepage": plugin.homepage or None,
        "issues": plugin.issues or None,
    }


def _say_table(rows: Sequence[Facts], everything: bool, otherwise: str) -> None:
    shown = [row for row in rows if everything or row.status != SHADOWED]
    if not shown:
        say(otherwise)
        return
    head = ["plugin", "distribution", "version", "status", "grade", "evidence", *(["installed"] if everything else [])]
    cells = [
        [
            row.plugin.name,
            row.plugin.distribution,
            row.plugin.version,
            row.status,
            row.checked.label if row.checked else "-",
            (row.checked.summary if row.checked else "") or "-",
            *([_how(row.plugin)] if everything else []),
            row.error or ", ".join(row.plugin.provides) or row.plugin.summary,
        ]
        for row in shown
    ]
    table([*head, "provides"], cells)


def _how(plugin: InstalledPlugin) -> str:
    """Where it runs from."""
    return f"editable, {source_folder(plugin) or plugin.location}" if plugin.editable else plugin.location
