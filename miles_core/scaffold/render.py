"""From templates to the files of one plugin: every name filled in, everything still in memory."""

from __future__ import annotations

import re

import miles_core
from miles_core.contracts.hook_api import HOOK_API_VERSION
from miles_core.errors import Problem
from miles_core.scaffold.names import Names
from miles_core.scaffold.templates import ABOUT, RECIPE, kind_texts, shared_texts, whole_recipe

NEEDED = {"numpy": "numpy>=1.26", "pydantic": "pydantic>=2.9,<3"}
"""What a generated package may import beside the core and the standard library -> how it asks for it."""


def render(kind: str, names: Names) -> dict[str, str]:
    """Relative path -> text of every file of the plugin."""
    own = kind_texts(kind)
    about = own.pop(ABOUT)
    sections = own.pop(RECIPE, None)
    files = shared_texts() | own
    words = _words(kind, about, sections, own)
    files = {place: _fill(text, words) for place, text in files.items()}
    if sections is not None:
        files[RECIPE] = whole_recipe(sections)
    return {names_in(place, names): names_in(text, names) for place, text in sorted(files.items())}


def names_in(text: str, names: Names) -> str:
    """`xyz` as the plugin's name: in a module's name, in a class's, anywhere else."""
    text = text.replace("miles_plugin_xyz", f"miles_plugin_{names.module}")
    return text.replace("Xyz", names.title).replace("xyz", names.plugin)


def class_problems(kind: str, names: Names) -> list[Problem]:
    """Classes that the name would give, and that cannot be called so."""
    found = {word for text in kind_texts(kind).values() for word in re.findall(r"\b\w*Xyz\w*\b", text)}
    classes = sorted(names_in(word, names) for word in found)
    return [
        Problem(f"the name would make a class {each!r}, which miles_core has already", "NAME", "choose another name")
        for each in classes
        if each in miles_core.__all__
    ]


def _words(kind: str, about: str, sections: str | None, own: dict[str, str]) -> dict[str, str]:
    """What the words in capitals of the shared files stand for."""
    summary = about.split("\n\n", 1)[0].replace("\n", " ").strip()
    code = "\n".join(text for place, text in own.items() if place.startswith("miles_plugin_xyz/"))
    major, minor, *_ = miles_core.__version__.split(".")
    needs = [f"miles-core>={major}.{minor},<{int(major) + 1}"]
    needs += [NEEDED[each] for each in sorted(NEEDED) if re.search(rf"^(import|from) {each}\b", code, re.M)]
    return {
        "@KIND@": kind,
        "@SUMMARY@": summary.rstrip("."),
        "@ABOUT@": about.strip(),
        "@USE@": _use(sections),
        "@NEEDS@": '",\n  "'.join(needs),
        "@HOOK_API@": HOOK_API_VERSION,
    }


def _use(sections: str | None) -> str:
    """The README's part about recipes."""
    if sections is None:
        return ""
    return (
        "\n## Use\n\nIn a recipe:\n\n"
        f"```yaml\nplugins: [toy, xyz]\n{sections.strip()}\n```\n\n"
        "`miles run recipe.yaml` runs a whole one in seconds, without a GPU.\n"
    )


def _fill(text: str, words: dict[str, str]) -> str:
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    return text
