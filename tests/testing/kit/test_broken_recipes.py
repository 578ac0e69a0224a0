"""Broken packaged recipes: each check catches what it is for."""

from __future__ import annotations

import sys

import pytest
from trying import try_check

from miles_core.testing.kit.check import CheckResult

GOOD = """# The toy ring, for a check.
miles: 1
seed: 1
plugins: [toy]
model: {use: toy}
data: {use: file, path: tasks.jsonl}
schedule: {use: sync, groups_per_step: 2, group_size: 2}
generator: {use: single-turn, sampling: {max_new_tokens: 4}}
rewards: [{use: match}]
advantage: {use: toy}
loss: {use: toy}
engine: {use: toy}
trainer: {use: toy}
steps: 1
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    folder = tmp_path / "recipes_of_a_test"
    folder.mkdir()
    (folder / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    sys.modules.pop("recipes_of_a_test", None)


def tried(name):
    return try_check(f"recipe/{name}", "recipes_of_a_test:one.yaml").result


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("is-a-recipe", GOOD.replace("miles: 1", "miles: 2")),
        ("is-a-recipe", GOOD.partition("\n")[2]),
        ("can-be-planned", GOOD.replace("use: match", "use: mtach")),
    ],
)
def test_a_broken_one_is_caught(package, name, text):
    (package / "one.yaml").write_text(text)
    assert tried(name) is CheckResult.FAILED


def test_a_missing_file_is_caught(package):
    assert tried("file-is-there") is CheckResult.FAILED


@pytest.mark.parametrize("name", ["file-is-there", "is-a-recipe", "can-be-planned"])
def test_a_good_one_passes(package, name):
    (package / "one.yaml").write_text(GOOD)
    assert tried(name) is CheckResult.PASSED


def test_a_recipe_of_plugins_that_are_not_here_cannot_be_tried(package):
    (package / "one.yaml").write_text(GOOD.replace("[toy]", "[toy, not-installed-anywhere]"))
    assert tried("can-be-planned") is CheckResult.SKIPPED
