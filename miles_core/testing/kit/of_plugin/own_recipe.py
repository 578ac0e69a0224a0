"""The recipe.yaml in a plugin's source folder: what its README tells people to run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from miles_core.errors import MilesError
from miles_core.host.decide import CORE_DISTRIBUTION
from miles_core.recipe.document import read_document
from miles_core.recipe.plan import load_plan
from miles_core.testing.kit.apart import python
from miles_core.testing.kit.check import Grade, check, expect, fail, inapplicable, skip
from miles_core.testing.kit.probes import MARK
from miles_core.testing.kit.subject import PluginSubject

FILE = "recipe.yaml"
TOY = "toy"

_RUN = f"""
import json, sys
from pathlib import Path
from miles_core import MilesError, run
file, runs, sections = sys.argv[1:]
told = []
try:
    run(Path(file), runs_dir=Path(runs), view="none", **json.loads(sections))
except MilesError as error:
    told = [[problem.what, problem.where, problem.mend] for problem in error.problems]
except Exception as error:
    told = [[f"{{type(error).__name__}}: {{error}}", "", ""]]
print({MARK!r} + json.dumps(told), flush=True)
"""


@check("", Grade.GOLD, "the recipe.yaml in its source folder is planned, and runs a step when it is of the toy ring")
def own_recipe_runs(subject: PluginSubject) -> None:
    file = subject.source / FILE if subject.source else None
    if file is None or not file.is_file():
        inapplicable("there is no recipe.yaml in a source folder at hand")
    wanted = _plan(subject, file)
    if TOY in wanted and wanted <= {TOY, CORE_DISTRIBUTION, subject.plugin.name, subject.plugin.distribution}:
        _run(file, subject.folder)


def _plan(subject: PluginSubject, file: Path) -> set[str]:
    """Plan it; the names of the plugins that it enables."""
    try:
        wanted = {str(name).partition(":")[0] for name in read_document(file).data.get("plugins", ())}
        plugins = subject.registry.index.plugins
        if missing := sorted(wanted - {name for each in plugins for name in (each.name, each.distribution)}):
            skip(f"{FILE} enables what is not installed: {', '.join(missing)}")
        load_plan(file)
    except MilesError as error:
        problem = error.problems[0]
        fail(f"miles plan {FILE}: {problem.what} ({problem.where})", problem.mend or f"see miles plan {file}")
    return wanted


def _run(file: Path, folder: Path) -> None:
    """One step, in a process of its own: toy components need no others."""
    ended = python(_RUN, str(file), str(folder / "runs"), json.dumps(_sections(read_document(file).data)))
    lines = [line.removeprefix(MARK) for line in ended.output.splitlines() if line.startswith(MARK)]
    expect(lines, f"miles run {FILE} ended with status {ended.status}: {ended.last_words}", f"see miles run {file}")
    for what, where, mend in json.loads(lines[-1])[:1]:
        place = f" ({where})" if where else ""
        fail(f"miles run {FILE}: {what}{place}", mend or f"repair it: miles run {file} --set steps=1")


def _sections(recipe: Mapping[str, Any]) -> dict[str, Any]:
    sections: dict[str, Any] = {"steps": 1} if "steps" in recipe else {}
    return sections if "runtime" in recipe else {**sections, "runtime": {"use": "in-process"}}
