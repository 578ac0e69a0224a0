"""`milesfile.py` beside a recipe: a plugin without a package."""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path
from typing import Any

import pytest

from miles_core.errors import PluginError, RequestError
from miles_core.host.request import PluginRequest, read_request
from miles_core.loop import api
from miles_core.recipe.plan import load_plan
from miles_core.recipe.render import plan_lines

SOURCE = """
from miles_core import Component, Options, hookimpl

class LengthOptions(Options):
    scale: float = 1.0

class Length:
    def __init__(self, options, context):
        self.scale = options.scale

@hookimpl
def miles_rewards():
    return [Component("length", "milesfile:Length", "milesfile:LengthOptions")]
"""


def asked(*selected: str, no_plugins: bool = False) -> PluginRequest:
    return read_request(selected, no_plugins=no_plugins, environ={}, folder=Path("/nonexistent"))


def recipe_with_length(kitchen: Any, **sections: str) -> str:
    text: str = kitchen.changed(rewards="[{use: length, scale: 3}]", **sections)
    return text


def test_its_components_are_found_by_their_plain_name(kitchen: Any) -> None:
    (kitchen.folder / "milesfile.py").write_text(SOURCE)
    plan = kitchen.plan(recipe_with_length(kitchen))
    ref = plan.phases[0].rewards[0].ref
    assert (ref.name, ref.factory, ref.distribution, ref.options) == ("length", "milesfile:Length", "", {"scale": 3.0})
    assert plan.recipe["plugins"] == ["toy", "lab", "milesfile"] and plan.recipe["code"] == [str(kitchen.folder)]
    locked = plan.plugins[-1]
    digest = hashlib.sha256(SOURCE.encode()).hexdigest()
    assert (locked.name, locked.distribution, locked.version, locked.record) == ("milesfile", "", "", digest)
    (line,) = [line for line in plan_lines(plan) if line.lstrip().startswith("milesfile ")]
    assert line.endswith("beside the recipe")


def test_it_may_lie_in_a_folder_of_code(kitchen: Any) -> None:
    (kitchen.folder / "lib").mkdir()
    (kitchen.folder / "lib" / "milesfile.py").write_text(SOURCE)
    with pytest.raises(RequestError, match="no reward 'length'"):
        kitchen.plan(recipe_with_length(kitchen))
    plan = kitchen.plan(recipe_with_length(kitchen, code="[lib]"))
    assert plan.verdicts[-1].reasons[0].where == "in code: lib" and plan.recipe["code"] == [str(kitchen.folder / "lib")]


def test_the_one_beside_the_recipe_comes_first_here_and_in_the_resolved_recipe(kitchen: Any, tmp_path: Path) -> None:
    (kitchen.folder / "lib").mkdir()
    (kitchen.folder / "lib" / "milesfile.py").write_text("raise SystemExit(0)")
    (kitchen.folder / "milesfile.py").write_text(SOURCE)
    plan = kitchen.plan(recipe_with_length(kitchen, code="[lib]"))
    again = load_plan(plan.recipe)[0]
    assert again.plugins == plan.plugins and again.phases == plan.phases


@pytest.mark.parametrize("request_", [asked("no:milesfile"), asked(no_plugins=True)])
def test_it_can_be_left_out(kitchen: Any, request_: PluginRequest) -> None:
    (kitchen.folder / "milesfile.py").write_text("raise SystemExit(0)")
    plan, _ = load_plan(kitchen.write(kitchen.changed(loss="{use: toy}", advantage="{use: toy}")), (), request_)
    assert "milesfile" not in [each.name for each in plan.plugins] and "milesfile" not in sys.modules
    assert plan.recipe["plugins"][-1] == "no:milesfile"
    assert load_plan(plan.recipe)[0].plugins == plan.plugins


BROKEN = [
    ("raise SystemExit(0)", "milesfile failed to load: SystemExit: 0"),
    ("def (", "milesfile failed to load: SyntaxError"),
    ("def miles_rewards(): return []", "milesfile: miles_rewards looks like a hook but is not marked"),
    ("from miles_core import hookimpl\n@hookimpl\ndef miles_rewrads(): return []", "did you mean miles_rewards?"),
    ("x = 1", "milesfile implements no hook"),
]


@pytest.mark.parametrize(("source", "says"), BROKEN)
def test_it_is_guarded_and_checked_like_any_plugin(kitchen: Any, source: str, says: str) -> None:
    (kitchen.folder / "milesfile.py").write_text(source)
    with pytest.raises(PluginError) as error:
        kitchen.plan()
    assert says in str(error.value) and str(kitchen.folder / "milesfile.py") in str(error.value)


def test_what_it_prints_stays_off_stdout(kitchen: Any, capsys: pytest.CaptureFixture[str]) -> None:
    (kitchen.folder / "milesfile.py").write_text("print('hello')\n" + SOURCE)
    kitchen.plan(recipe_with_length(kitchen))
    captured = capsys.readouterr()
    assert captured.out == "" and "hello" in captured.err


def test_another_module_of_that_name_is_not_taken_for_it(kitchen: Any) -> None:
    kitchen.site.module("milesfile", SOURCE)
    (kitchen.folder / "milesfile.py").write_text(SOURCE)
    with pytest.raises(PluginError, match="`import milesfile` gives"):
        kitchen.plan(recipe_with_length(kitchen))


def test_two_recipes_of_one_process_have_each_their_own(kitchen: Any, tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "milesfile.py").write_text(SOURCE.replace('"length"', f'"{name}"'))
        (tmp_path / name / "r.yaml").write_text(kitchen.changed(rewards=f"[{{use: {name}}}]"))
    first, second = (load_plan(tmp_path / name / "r.yaml")[0] for name in ("a", "b"))
    assert (first.phases[0].rewards[0].ref.name, second.phases[0].rewards[0].ref.name) == ("a", "b")


def test_it_and_a_plugin_with_the_same_component_are_told_apart(kitchen: Any) -> None:
    (kitchen.folder / "milesfile.py").write_text(SOURCE.replace('"length"', '"match"'))
    with pytest.raises(PluginError) as error:
        kitchen.plan()
    assert "is provided by" in str(error.value) and "miles-core:match or milesfile:match" in str(error.value)
    plan = kitchen.plan(kitchen.changed(rewards="[{use: 'milesfile:match', scale: 2}]"))
    assert plan.phases[0].rewards[0].ref.factory == "milesfile:Length"
    assert load_plan(plan.recipe)[0].phases == plan.phases
    assert kitchen.plan(kitchen.changed(rewards="[{use: 'miles-core:match'}]")).phases[0].rewards[0].ref.distribution


def test_a_recipe_from_python_takes_none_from_the_working_folder(kitchen: Any, recipe: dict[str, Any]) -> None:
    (kitchen.folder / "milesfile.py").write_text("raise SystemExit(0)")
    assert "milesfile" not in [each.name for each in load_plan({**recipe, "name": "r"})[0].plugins]


RUN = """
miles: 1
plugins: [toy]
model: {use: toy}
data: {use: file, path: tasks.jsonl}
schedule: {use: sync, groups_per_step: 1, group_size: 2}
generator: {use: single-turn, sampling: {max_new_tokens: 4}}
rewards: [{use: length}]
advantage: {use: toy}
loss: {use: mine}
engine: {use: toy}
trainer: {use: toy}
checkpoint: {every: 1}
steps: 2
"""

WHOLE = """
from pathlib import Path
from miles_core import Component, Score, hookimpl
from miles_core.testing.toy.learning import ToyLoss

class Length:
    def __init__(self, options, context):
        pass
    async def score(self, group):
        return [Score(1.0) for _ in group.trajectories]

class Mine(ToyLoss):
    '''Built in the trainer's own process.'''

@hookimpl
def miles_rewards():
    return [Component("length", "milesfile:Length")]

@hookimpl
def miles_losses():
    return [Component("mine", "milesfile:Mine")]

@hookimpl
def miles_checkpoint_saved(step, folder):
    if not Path("resumed").exists():
        raise KeyboardInterrupt
"""


def test_a_run_with_it_reaches_the_workers_and_is_resumed(kitchen: Any) -> None:
    (kitchen.folder / "recipes").mkdir()
    (kitchen.folder / "recipes" / "milesfile.py").write_text(WHOLE)
    (kitchen.folder / "recipes" / "r.yaml").write_text(RUN)
    (kitchen.folder / "tasks.jsonl").write_text('{"prompt": "1+1", "answer": "2"}\n')
    with pytest.raises(KeyboardInterrupt):
        api.run(Path("recipes/r.yaml"), view="none")
    (folder,) = (kitchen.folder / "runs").iterdir()
    (kitchen.folder / "resumed").touch()
    assert len(api.resume(folder, view="none").metrics) == 2


def test_a_run_is_not_resumed_with_another_milesfile(kitchen: Any) -> None:
    (kitchen.folder / "recipes").mkdir()
    file = kitchen.folder / "recipes" / "milesfile.py"
    file.write_text(WHOLE)
    (kitchen.folder / "recipes" / "r.yaml").write_text(
        RUN.replace("{use: toy}\ncheck", "{use: toy}\nruntime: {use: in-process}\ncheck")
    )
    (kitchen.folder / "tasks.jsonl").write_text('{"prompt": "1+1", "answer": "2"}\n')
    with pytest.raises(KeyboardInterrupt):
        api.run(Path("recipes/r.yaml"), view="none")
    (folder,) = (kitchen.folder / "runs").iterdir()
    file.write_text(WHOLE + "# changed\n")
    with pytest.raises(PluginError, match=r"plugin milesfile \(research code\) has the files"):
        api.resume(folder, view="none")
