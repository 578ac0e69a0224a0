"""`miles plugins show`: one plugin, loaded in a process of its own, with all that it offers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from miles_core.cli.output import remark, say, say_json, table
from miles_core.cli.plugin_list import plugin_json, project_choices
from miles_core.errors import EXIT_DONE, EXIT_PLUGIN, MilesError, PluginError, Problem, RequestError
from miles_core.host.decide import matching
from miles_core.host.facts import BROKEN, INCOMPATIBLE, SHADOWED, Facts, facts_of, is_of_other_code
from miles_core.host.probe import Probe, probe
from miles_core.host.scan import Index, InstalledPlugin, scan


def show_plugin(name: str, *, as_json: bool) -> int:
    """Print it. A plugin that does not load is shown with the reason, and the exit code says so.

    Raises RequestError when it is not installed, PluginError when several distributions provide it.
    """
    index = scan()
    row = find_plugin(index, name, facts_of(index, project_choices(index)))
    seen = probe(row.plugin) if row.plugin.module and row.status != SHADOWED else Probe()
    problems = [*seen.problems] or _standing(
        row
    )  # loading says the same of what its metadata lacks, and how to mend it
    if as_json:
        say_json(
            {
                **plugin_json(row),
                "record_is_of_other_code": is_of_other_code(row),
                "healthy": not problems,
                "problems": [problem.to_json() for problem in problems],
                "import_ms": seen.import_ms,
                "imports": dict(seen.modules),
                "heavy_imports": list(seen.heavy),
                "components": list(seen.components),
                "hooks": list(seen.hooks),
            }
        )
    else:
        _say_page(row, seen)
    for problem in problems:
        remark(f"error: {problem}")
    return EXIT_PLUGIN if problems else EXIT_DONE


def find_plugin(index: Index, name: str, rows: Sequence[Facts]) -> Facts:
    """The row of the plugin that `name` means: one that can be used, else a broken one, else a shadowed one."""
    for candidates in (index.plugins, [row.plugin for row in rows], index.shadowed):
        found = matching(candidates, name)
        if len(found) == 1:
            return next(row for row in rows if row.plugin == found[0])
        if found:
            from miles_core.host.names import ambiguous

            raise PluginError([ambiguous(name, found)])
    providers = [row for row in rows if name in row.plugin.provides and row.status != SHADOWED]
    if len(providers) == 1:
        return providers[0]
    from miles_core.host.names import unknown

    raise RequestError([unknown(index, name)])


def find_plugins(index: Index, names: Sequence[str], rows: Sequence[Facts]) -> list[Facts]:
    """The rows that the names mean, each once; all when there are no names. Raises RequestError with every name that
    is not installed or not clear."""
    if not names:
        return list(rows)
    found: dict[InstalledPlugin, Facts] = {}
    problems: list[Problem] = []
    for name in names:
        try:
            row = find_plugin(index, name, rows)
            found[row.plugin] = row
        except MilesError as error:
            problems += error.problems
    if problems:
        raise RequestError(problems)
    return list(found.values())


def _standing(row: Facts) -> list[Problem]:
    """What its metadata alone says against it."""
    if row.status not in (BROKEN, INCOMPATIBLE, SHADOWED):
        return []
    mend = f"pip install --upgrade {row.plugin.distribution}"
    if row.status == SHADOWED:
        mend = "remove or refresh the one that comes earlier on the import path"
    return [Problem(f"plugin {row.plugin.title} is {row.status}: {row.error}", row.plugin.location, mend)]


def _say_page(row: Facts, seen: Probe) -> None:
    plugin, checked = row.plugin, row.checked
    took = "did not end" if seen.import_ms is None else f"{seen.import_ms:.0f} ms over the core"
    heavy = f"; brings in {', '.join(seen.heavy)}" if seen.heavy else ""
    lines = [
        ("plugin", plugin.name),
        ("distribution", f"{plugin.distribution} {plugin.version}{' (editable)' if plugin.editable else ''}"),
        ("status", row.status),
        ("summary", plugin.summary),
        ("module", plugin.module),
        ("location", plugin.location),
        ("homepage", plugin.homepage),
        ("issues", plugin.issues),
        ("requires", ", ".join(_requirement(state) for state in row.requirements) or "nothing"),
        ("hook API", plugin.hook_api),
        ("grade", _grade(row)),
        ("import", f"{took}{heavy}"),
    ]
    for label, value in lines:
        if value:
            say(f"{label:14}{value}")
    for component in seen.components:
        _say_component(component, checked.evidence if checked and checked.current else {})
    if seen.hooks:
        say("")
        table(("hook", "where"), [(hook["hook"], hook["where"]) for hook in seen.hooks])


def _grade(row: Facts) -> str:
    if row.checked is None:
        return "never checked"
    edited = is_of_other_code(row)
    grade = row.checked.grade or "none"
    return f"{grade} (of other code: the package was edited since)" if edited else row.checked.label


def _requirement(state: Any) -> str:
    return state.requirement if state.ok else f"{state.requirement} (not met: {state.fault})"


def _say_component(component: Mapping[str, Any], evidence: Mapping[str, str]) -> None:
    name = f"{component['kind']}.{component['name']}"
    level = evidence.get(name)
    say("")
    say(f"{name}: {component['summary']}" if component["summary"] else name)
    if level:
        say(f"  evidence      {level}")
    if component["capabilities"]:
        say(f"  capabilities  {', '.join(component['capabilities'])}")
    if component["example"]:
        say(f"  example       {component['example']}")
    for option in component["options"]:
        value = "required" if option["required"] else f"default {option['default']!r}"
        text = f"; {option['description']}" if option["description"] else ""
        say(f"  {option['name']:24}{option['type']}, {value}{text}")
