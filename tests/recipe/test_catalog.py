"""The recipes that there are."""

import hashlib
import json
import logging
import sys
from pathlib import Path
from typing import Any

import pytest

from miles_core.errors import RequestError
from miles_core.host.scan import scan
from miles_core.recipe.catalog import find_recipe, list_recipes

PACKAGED = """
from miles_core import Component, hookimpl

@hookimpl
def miles_recipes():
    data = "miles_plugin_menu_data"
    return [Component("big", f"{data}:recipes/big.yaml"), Component("gone", f"{data}:x.yaml")]
"""


def _record(recipe: Path, evidence: str) -> None:
    digest = hashlib.sha256(recipe.read_bytes()).hexdigest()
    place = recipe.with_suffix(".evidence.json")
    place.write_text(json.dumps({"evidence": evidence, "recipe_sha256": digest}))


@pytest.fixture
def menu(kitchen: Any) -> Path:
    """A folder of recipes, and a plugin with one."""
    folder: Path = kitchen.folder / "recipes"
    folder.mkdir()
    (folder / "quick.yaml").write_text("# Trains a small model\n# in ten minutes.\n#\n# More words.\nmiles: 1\n")
    _record(folder / "quick.yaml", "verified")
    (folder / "changed.yaml").write_text("# As it was.\n")
    _record(folder / "changed.yaml", "verified")
    (folder / "changed.yaml").write_text("# Changed since.\n")
    (folder / "bare.yaml").write_text("miles: 1\n")
    _record(folder / "bare.yaml", "trust me")
    kitchen.site.plugin("menu", PACKAGED, provides=["recipe.big"])
    package = kitchen.site.folder / "miles_plugin_menu_data"
    (package / "recipes").mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit(0)")
    (package / "recipes" / "big.yaml").write_text("# A big one.\nmiles: 1\n")
    return folder


def test_recipes_have_name_summary_evidence_and_origin(
    menu: Path, kitchen: Any, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        entries = {entry.name: entry for entry in list_recipes([menu], scan([str(kitchen.site.folder)]))}
    assert entries["quick"].summary == "Trains a small model in ten minutes."
    assert entries["quick"].evidence == "verified" and entries["quick"].origin == str(menu)
    assert entries["bare"].summary == "" and entries["bare"].evidence == "not-verified"
    assert "trust me" in caplog.text
    assert entries["changed"].evidence == "not-verified"
    assert entries["big"].origin == "miles-plugin-menu" and entries["big"].summary == "A big one."
    assert "gone" not in entries and "x.yaml, which is not there" in caplog.text
    assert "miles_plugin_lab" not in sys.modules, "a plugin without recipes was imported"
    assert entries["big"].to_json()["file"].endswith("recipes/big.yaml")


def test_a_recipe_is_found_by_path_or_name(menu: Path) -> None:
    assert find_recipe("some/where.yaml") == Path("some/where.yaml")
    assert find_recipe("quick") == Path("recipes/quick.yaml")
    assert find_recipe("big").name == "big.yaml"


def test_an_unknown_name_gets_the_nearest(menu: Path) -> None:
    with pytest.raises(RequestError) as error:
        find_recipe("quik")
    assert "there are: bare, changed, quick" in str(error.value) and "did you mean 'quick'?" in str(error.value)


def test_a_plugin_of_recipes_that_is_broken_is_named(
    menu: Path, kitchen: Any, caplog: pytest.LogCaptureFixture
) -> None:
    kitchen.site.plugin("bad", "raise SystemExit(0)", provides=["recipe.bad"])
    assert "big" in [entry.name for entry in list_recipes([menu])]
    assert "plugin bad (miles-plugin-bad 1.0) does not load" in caplog.text


def test_a_plugin_of_recipes_that_is_disabled_is_not_imported(
    kitchen: Any, menu: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kitchen.site.plugin("loud", "raise SystemExit(0)", provides=["recipe.loud"])
    monkeypatch.setenv("MILES_PLUGINS", "no:loud,no:menu")
    assert "big" not in [entry.name for entry in list_recipes([menu])]
    assert "miles_plugin_loud" not in sys.modules
