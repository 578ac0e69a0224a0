"""Research code in a recipe: `use: module:attr`."""

import sys
from pathlib import Path
from typing import Any

import pytest

from miles_core.errors import RequestError
from miles_core.recipe.plan import load_plan
from miles_core.recipe.yaml_text import dump

MINE = """
def longest(text):
    return float(len(text))

NUMBER = 3

class Whole:
    def __init__(self, options, context):
        pass

from miles_core import Options

class Tuned(Whole):
    class Options(Options):
        scale: float = 2.0
"""


def test_a_plain_function_is_a_reward(kitchen: Any) -> None:
    (kitchen.folder / "mine.py").write_text(MINE)
    plan = kitchen.plan(kitchen.changed(rewards="[{use: mine:longest, weight: 2}]"))
    reward = plan.phases[0].rewards[0]
    assert (reward.name, reward.weight) == ("longest", 2.0)
    assert reward.ref.factory == "miles_core.rollout.function_reward:FunctionReward"
    assert reward.ref.options == {"path": "mine:longest"} and reward.ref.distribution == ""
    assert plan.recipe["rewards"][0] == {"use": "mine:longest", "name": "longest", "weight": 2.0}
    locked = plan.plugins[-1]
    assert (locked.name, locked.distribution) == ("mine:longest", "") and len(locked.record) == 64


def test_a_class_is_a_factory_with_its_own_options(kitchen: Any) -> None:
    (kitchen.folder / "mine.py").write_text(MINE)
    plan = kitchen.plan(kitchen.changed(rewards="[{use: mine:Whole}]", advantage="{use: mine:Tuned, scale: 3}"))
    assert plan.phases[0].rewards[0].ref.factory == "mine:Whole"
    advantage = plan.phases[0].advantage
    assert (advantage.factory, advantage.options_model, advantage.options) == (
        "mine:Tuned",
        "mine:Tuned.Options",
        {"scale": 3.0},
    )
    assert load_plan(plan.recipe)[0].phases == plan.phases


def test_code_beside_the_recipe_and_in_the_working_directory_is_found(kitchen: Any, tmp_path: Path) -> None:
    elsewhere = tmp_path / "recipes"
    elsewhere.mkdir()
    (elsewhere / "beside.py").write_text(MINE)
    (kitchen.folder / "here.py").write_text(MINE)
    file = elsewhere / "r.yaml"
    file.write_text(kitchen.changed(rewards="[{use: beside:longest}, {use: here:longest, name: second}]"))
    assert [reward.name for reward in load_plan(file)[0].phases[0].rewards] == ["longest", "second"]
    assert sys.path[-2:] == [str(elsewhere), str(kitchen.folder)]


def test_the_resolved_recipe_finds_the_code_from_anywhere(
    kitchen: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (kitchen.folder / "code").mkdir()
    (kitchen.folder / "code" / "mine.py").write_text(MINE)
    plan = kitchen.plan(kitchen.changed(code="[code]", rewards="[{use: mine:longest}]"))
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if str(kitchen.folder) not in entry])
    del sys.modules["mine"]
    run = tmp_path / "runs" / "recipe-1"
    run.mkdir(parents=True)
    (run / "recipe.yaml").write_text(dump(plan.recipe))
    monkeypatch.chdir(tmp_path)
    again = load_plan(run / "recipe.yaml")[0]
    assert again.phases == plan.phases and again.plugins == plan.plugins
    assert again.recipe == plan.recipe and plan.recipe["code"] == [str(kitchen.folder / "code")]


def test_code_of_another_recipe_with_the_same_name_is_not_taken(kitchen: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "samename.py").write_text(f"def {name}(text): return 1.0")
        (tmp_path / name / "r.yaml").write_text(kitchen.changed(rewards=f"[{{use: samename:{name}}}]"))
    first, second = (load_plan(tmp_path / name / "r.yaml")[0] for name in ("a", "b"))
    assert first.plugins[-1].record != second.plugins[-1].record
    assert str(tmp_path / "a") not in sys.path


def test_a_distribution_comes_before_a_module(kitchen: Any) -> None:
    plan = kitchen.plan(kitchen.changed(loss="{use: miles_plugin_lab:deep}"))
    assert plan.phases[0].loss.distribution == "miles-plugin-lab"


CASES = [
    ("nosuch:f", "module 'nosuch' cannot be imported: ModuleNotFoundError", "it is looked for in what is installed"),
    ("mine:longets", "there is no 'longets' in", "did you mean 'longest'?"),
    ("mine:NUMBER", "is a int, expected a function or a class", ""),
    ("broken:f", "SystemExit: 0 (", "mend it"),
    ("missing:f", "No module named 'nosuch_inner' (", "mend it"),
    ("not-a-distribution:f", "there is no reward 'not-a-distribution:f'", ""),
]


@pytest.mark.parametrize(("use", "says", "mend"), CASES)
def test_a_wrong_module_or_attribute_has_its_place(kitchen: Any, use: str, says: str, mend: str) -> None:
    (kitchen.folder / "mine.py").write_text(MINE)
    (kitchen.folder / "broken.py").write_text("raise SystemExit(0)")
    (kitchen.folder / "missing.py").write_text("\nimport nosuch_inner")
    with pytest.raises(RequestError) as error:
        kitchen.plan(kitchen.changed(rewards=f"[{{use: {use}}}]"))
    (problem,) = error.value.problems
    assert problem.what.startswith("rewards[0].use: ") and says in problem.what and mend in problem.mend
    assert problem.where.endswith("recipe.yaml:14:12") and error.value.exit_code == 2


def test_what_the_function_prints_at_import_stays_off_stdout(kitchen: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (kitchen.folder / "chatty.py").write_text("print('hello')\n" + MINE)
    kitchen.plan(kitchen.changed(rewards="[{use: chatty:longest}]"))
    captured = capsys.readouterr()
    assert captured.out == "" and "hello" in captured.err


def test_options_beside_a_function_are_refused(kitchen: Any) -> None:
    (kitchen.folder / "mine.py").write_text(MINE)
    with pytest.raises(RequestError, match=r"rewards\[0\]\.path: is not a known key"):
        kitchen.plan(kitchen.changed(rewards="[{use: mine:longest, path: other:f}]"))


def test_what_is_installed_in_a_searched_folder_stays_loaded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As miles_core itself does, in a checkout that is installed editable and is the working directory."""
    import miles_core
    from miles_core.recipe import research

    root = Path(miles_core.__file__).parents[1]
    monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(root)])
    kept = sys.modules["miles_core.contracts.component"]
    (tmp_path / "passing_by.py").write_text("")
    research.search_folders([root, tmp_path])
    __import__("passing_by")
    research.search_folders([tmp_path / "another"])
    assert sys.modules["miles_core.contracts.component"] is kept
    assert "passing_by" not in sys.modules
