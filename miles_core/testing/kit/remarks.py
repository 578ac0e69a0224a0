"""What is no broken promise, and still not what an author means to publish: texts that `miles plugins new` wrote."""

from __future__ import annotations

import re
from collections.abc import Iterator

from miles_core.contracts.component import KINDS
from miles_core.scaffold.names import Names
from miles_core.scaffold.render import render
from miles_core.testing.kit.run import Examination

README, PROJECT = "README.md", "pyproject.toml"
DESCRIPTION = re.compile(r'^description = "(.*)"$', re.MULTILINE)
SUMMARY = re.compile(r'summary="(.*)"')


def remarks(examination: Examination) -> tuple[str, ...]:
    """Of a plugin whose source is at hand. A grade says nothing about them: a plugin that was just made has it too."""
    return tuple(_left_in_place(examination))


def _left_in_place(examination: Examination) -> Iterator[str]:
    source, names = examination.source, Names.of(examination.plugin.name)
    kinds = [kind for kind in KINDS if any(each.kind == kind for each in examination.components)]
    if source is None or names.problems(type(examination.registry.index)(())):
        return
    made = [render(kind, names) for kind in kinds]
    readme = source / README
    if readme.is_file() and readme.read_text(encoding="utf-8") in [files[README] for files in made]:
        yield f"{README} is still the one that `miles plugins new` wrote: say what the plugin is for"
    project = source / PROJECT
    described = DESCRIPTION.search(project.read_text(encoding="utf-8")) if project.is_file() else None
    if described and described[1] in [found[1] for files in made if (found := DESCRIPTION.search(files[PROJECT]))]:
        yield f"{PROJECT} still has the description of the template: {described[1]!r}"
    texts = [text for files in made for file, text in files.items() if file.endswith("/plugin.py")]
    summaries = {text for each in texts for text in SUMMARY.findall(each)}
    for each in examination.components:
        if each.component.summary in summaries:
            yield f"{each.kind}.{each.component.name} still has the summary of the template: {each.component.summary!r}"
