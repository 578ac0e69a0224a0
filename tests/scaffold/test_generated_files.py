"""What `miles plugins new` writes: which files, whose names, and that tools find no fault with any kind of plugin."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

import miles_core
from miles_core.contracts.component import KINDS
from miles_core.hookspecs import HOOK_OF_KIND
from miles_core.scaffold.names import LONGEST, Names
from miles_core.scaffold.render import render
from miles_core.scaffold.templates import KINDS_FOLDER, whole_recipe

from .conftest import ROOT, Workshop, name_of

EVERY_PLUGIN = {
    ".github/workflows/ci.yml", ".gitignore", "LICENSE", "README.md", "pyproject.toml",
    "PACKAGE/__init__.py", "PACKAGE/plugin.py", "PACKAGE/py.typed", "tests/test_KIND.py",
}  # fmt: skip
ONE_COMPONENT = {"PACKAGE/KIND.py", "PACKAGE/options.py", "recipe.yaml"}
FILES = {
    **dict.fromkeys(KINDS, ONE_COMPONENT),
    "agent": ONE_COMPONENT | {"PACKAGE/chat.py", "PACKAGE/game.py"},
    "engine": ONE_COMPONENT | {"PACKAGE/output.py"},
    "matcher": ONE_COMPONENT - {"recipe.yaml"},
    "model": ONE_COMPONENT | {"PACKAGE/renderer.py"},
    "recipe": {"PACKAGE/recipes/blue-recipe.yaml"},
    "renderer": ONE_COMPONENT - {"recipe.yaml"},
    "trainer": ONE_COMPONENT | {"PACKAGE/gradient.py"},
}


def files_of(folder: Path) -> set[str]:
    return {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_files_of_a_kind(generated: Workshop, kind: str) -> None:
    expected = {
        each.replace("PACKAGE", f"miles_plugin_blue_{kind}").replace("KIND", kind)
        for each in EVERY_PLUGIN | FILES[kind]
    }
    assert files_of(generated.plugin(kind)) == expected


@pytest.mark.parametrize("kind", KINDS)
def test_the_name_stands_everywhere(generated: Workshop, kind: str) -> None:
    for file in generated.plugin(kind).rglob("*"):
        text = file.read_text() if file.is_file() else ""
        assert "xyz" not in f"{file.name} {text}".lower(), file
        assert not re.search(r"@[A-Z_]+@", text), file
        assert "miles_plugin_blue-" not in text and f"miles-plugin-blue_{kind}" not in text, file
    project = tomllib.loads((generated.plugin(kind) / "pyproject.toml").read_text())["project"]
    package = f"miles_plugin_blue_{kind}"
    assert project["name"] == f"miles-plugin-{name_of(kind)}"
    assert project["entry-points"] == {
        "miles.plugins": {name_of(kind): f"{package}.plugin"},
        "miles.provides": {f"{kind}.{name_of(kind)}": package},
        "miles.hook_api": {miles_core.HOOK_API_VERSION: package},
    }
    assert 10 < len(project["description"]) < 200
    assert f"def {HOOK_OF_KIND[kind]}()" in (generated.package(kind) / "plugin.py").read_text()


@pytest.mark.parametrize("kind", KINDS)
def test_dependencies_are_what_the_code_imports(generated: Workshop, kind: str) -> None:
    code = "\n".join(file.read_text() for file in generated.package(kind).glob("*.py"))
    imported = {match[1] for match in re.finditer(r"^(?:from|import) (\w+)", code, re.M)}
    ours = {"miles_core", f"miles_plugin_blue_{kind}"}
    others = {each for each in imported - ours if each not in sys.stdlib_module_names}
    project = tomllib.loads((generated.plugin(kind) / "pyproject.toml").read_text())["project"]
    declared = {re.split(r"[<>=]", each)[0] for each in project["dependencies"]}
    assert declared == {"miles-core", *others}
    assert "miles_core." not in re.sub(r"`[^`]*`", "", code), "the public API is `from miles_core import X`"


@pytest.mark.parametrize("kind", [kind for kind in KINDS if (KINDS_FOLDER / kind / "recipe.yaml").exists()])
def test_the_readme_shows_what_the_recipe_says(generated: Workshop, kind: str) -> None:
    readme = (generated.plugin(kind) / "README.md").read_text()
    shown = yaml.safe_load(re.search(r"```yaml\n(.*?)```", readme, re.S)[1])
    recipe = yaml.safe_load((generated.plugin(kind) / "recipe.yaml").read_text())
    assert shown.items() <= recipe.items()
    assert name_of(kind) in str(shown)


def test_sections_of_a_kind_replace_those_of_the_toy_recipe() -> None:
    made = yaml.safe_load(whole_recipe("agent: {use: a}\nrewards:\n  - use: b\n    weight: 2\n"))
    assert made["agent"] == {"use": "a"}
    assert made["rewards"] == [{"use": "b", "weight": 2}]
    assert list(made)[-2:] == ["agent", "steps"]


def test_linters_find_nothing(generated: Workshop) -> None:
    folders = [str(generated.plugin(kind)) for kind in KINDS]
    done = subprocess.run([sys.executable, "-m", "ruff", "check", *folders], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_strict_types_find_nothing(generated: Workshop, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = [str(generated.package(kind)) for kind in KINDS]
    tests = [str(generated.plugin(kind) / "tests" / f"test_{kind}.py") for kind in KINDS]
    roots = [str(generated.plugin(kind)) for kind in KINDS]
    monkeypatch.setenv("MYPYPATH", ":".join([str(ROOT), *roots]))
    options = ["--strict", "--follow-imports=silent", "--explicit-package-bases", "--config-file="]
    cache = f"--cache-dir={ROOT / '.mypy_cache' / 'templates'}"
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *options, cache, *packages, *tests], capture_output=True, text=True, cwd=ROOT
    )
    assert done.returncode == 0, done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_pages_are_short_whatever_the_name(kind: str) -> None:
    longest = Names.of("a-name-as-long-as-any-may-be-x")
    assert len(longest.plugin) == LONGEST
    for place, text in render(kind, longest).items():
        if place.endswith(".py"):
            lines = text.splitlines()
            assert len(lines) < 200, place
            assert [line for line in lines if len(line) > 120] == [], place
