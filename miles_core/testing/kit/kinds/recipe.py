"""A packaged recipe: a YAML file that loads, and that can be planned where its plugins are installed."""

from __future__ import annotations

from pathlib import Path

from miles_core.errors import MilesError
from miles_core.host.scan import scan
from miles_core.recipe.catalog import packaged_file
from miles_core.recipe.document import read_document
from miles_core.recipe.plan import load_plan
from miles_core.testing.kit.check import Grade, check, expect, fail, skip
from miles_core.testing.kit.subject import ComponentSubject


@check("recipe", Grade.SILVER, "its factory names a YAML file of the package, and the file is there", gate=True)
def file_is_there(subject: ComponentSubject) -> None:
    _file(subject)


@check("recipe", Grade.SILVER, "the file is YAML that says `miles: 1`, and begins with a comment that says what it is")
def is_a_recipe(subject: ComponentSubject) -> None:
    file = _file(subject)
    data = read_document(file).data
    expect(data.get("miles") == 1, f"miles is {data.get('miles')!r}", "write `miles: 1`")
    text = file.read_text(encoding="utf-8")
    expect(text.startswith("#"), "it begins without a comment", "begin with a comment of one line: listings show it")


@check("recipe", Grade.GOLD, "`miles plan` has no objection to it")
def can_be_planned(subject: ComponentSubject) -> None:
    file = _file(subject)
    wanted = [str(name).partition(":")[0] for name in read_document(file).data.get("plugins", ())]
    installed = {name for plugin in scan().plugins for name in (plugin.name, plugin.distribution)}
    if missing := sorted(set(wanted) - installed):
        skip(f"not installed: {', '.join(missing)}")
    try:
        load_plan(file)
    except MilesError as error:
        fail("; ".join(problem.what for problem in error.problems), error.problems[0].mend or f"miles plan {file}")


def _file(subject: ComponentSubject) -> Path:
    file = packaged_file(subject.registered)
    if file is None:
        factory = subject.registered.component.factory
        fail(f"there is no {factory}", 'factory="package:path/of.yaml"; add the file to package-data in pyproject.toml')
    return file
