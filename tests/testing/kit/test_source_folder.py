"""A source folder at hand: its own recipe.yaml is planned and run, and texts of the template are remarked on."""

from __future__ import annotations

from pathlib import Path

import pytest

from miles_core.errors import RequestError
from miles_core.host.scan import Index
from miles_core.scaffold.make import make
from miles_core.testing.installing import SitePackages
from miles_core.testing.kit.check import CheckResult, Finding
from miles_core.testing.kit.remarks import remarks
from miles_core.testing.kit.run import examine


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The source folder of a reward that was just made, installed by its egg-info."""
    folder = tmp_path / "miles-plugin-short"
    make("short", "reward", folder, Index(()))
    SitePackages(folder).distribution(
        "miles-plugin-short",
        plugins={"short": "miles_plugin_short.plugin"},
        provides=["reward.short"],
        requires=["miles-core>=0.1"],
        egg=True,
    )
    monkeypatch.syspath_prepend(str(folder))
    return folder


def tried() -> Finding:
    [examination] = examine("short")
    [trial] = [trial for trial in examination.trials() if trial.check.id == "plugin/own-recipe-runs"]
    return examination.attempt(trial)


def test_the_recipe_of_a_source_folder(source: Path) -> None:
    assert tried().result is CheckResult.PASSED
    recipe, reward = source / "recipe.yaml", source / "miles_plugin_short" / "reward.py"
    written, code = recipe.read_text(), reward.read_text()

    recipe.write_text(written.replace("limit:", "limti:"))
    misspelt = tried()
    assert misspelt.result is CheckResult.FAILED
    assert "miles plan recipe.yaml" in misspelt.detail and "limti" in misspelt.detail
    assert "limit" in misspelt.mend

    recipe.write_text(written)
    reward.write_text(code.replace("def _judge(self, text", "def _judge(self, _no_such"))
    broken = tried()
    assert broken.result is CheckResult.FAILED
    assert "miles run recipe.yaml" in broken.detail

    recipe.write_text(written.replace("[toy, short]", "[toy, short, nothing-like-it]"))
    assert tried().result is CheckResult.SKIPPED
    recipe.unlink()
    assert tried().result is CheckResult.INAPPLICABLE


def test_texts_of_the_template_are_remarked_on(source: Path) -> None:
    [examination] = examine("short")
    readme, description, summary = remarks(examination)
    assert "README.md is still the one" in readme
    assert "description of the template" in description
    assert "reward.short still has the summary of the template" in summary
    (source / "README.md").write_text("# Short\n\nPrefers short answers, for models that talk too much.\n")
    assert remarks(examine("short")[0]) == (description, summary)
    assert remarks(examine("toy")[0]) == ()


def test_a_folder_that_is_not_installed_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    make("tall", "reward", None, Index(()))
    for written in ("tall", "Tall", "miles-plugin-tall"):
        with pytest.raises(RequestError, match="is not installed") as refused:
            examine(written)
        [problem] = refused.value.problems
        assert problem.mend.startswith("pip install --no-build-isolation --no-deps -e ")
        assert problem.mend.endswith("miles-plugin-tall") and problem.where.endswith("miles-plugin-tall")
