"""The templates as they lie in the package: which files a plugin of a kind gets, before names are filled in."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent
KINDS_FOLDER = ROOT / "kinds"

SHARED = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "LICENSE": "LICENSE",
    "gitignore": ".gitignore",
    "ci.yml": ".github/workflows/ci.yml",
    "py.typed": "miles_plugin_xyz/py.typed",
    "init.py": "miles_plugin_xyz/__init__.py",
}
"""File in `shared/` -> where it goes."""

ABOUT = "about.md"
RECIPE = "recipe.yaml"


def shared_texts() -> dict[str, str]:
    return {place: _read(ROOT / "shared" / file) for file, place in SHARED.items()}


def kind_texts(kind: str) -> dict[str, str]:
    """The kind's own files: package and tests as they will lie, `about.md`, and perhaps `recipe.yaml`."""
    folder = KINDS_FOLDER / kind
    files = (file for file in sorted(folder.rglob("*")) if file.is_file() and file.suffix in (".py", ".yaml", ".md"))
    return {file.relative_to(folder).as_posix(): _read(file) for file in files}


def whole_recipe(sections: str) -> str:
    """The toy recipe with the kind's sections in place of its own; a section that it lacks goes before `steps`."""
    recipe = _sections(_read(ROOT / "shared" / RECIPE))
    steps = recipe.pop("steps")
    recipe.update(_sections(sections))
    recipe.setdefault("steps", steps)
    return "".join(recipe.values())


def _sections(text: str) -> dict[str, str]:
    """Top-level key -> its lines. The comment before the first key belongs to it."""
    sections: dict[str, str] = {}
    key = head = ""
    for line in text.splitlines(keepends=True):
        if found := re.match(r"([a-z]+):", line):
            key = found[1]
            sections[key], head = head, ""
        if key:
            sections[key] += line
        else:
            head += line
    return sections


def _read(file: Path) -> str:
    return file.read_text(encoding="utf-8")
