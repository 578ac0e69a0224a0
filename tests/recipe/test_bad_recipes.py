"""Every fault of a recipe: its place, its value, what was expected, the nearest name, the exit code."""

from typing import Any

import pytest

from miles_core.errors import MilesError, PluginError, RequestError


def fails(kitchen: Any, text: str, *overrides: str) -> MilesError:
    with pytest.raises(MilesError) as error:
        kitchen.plan(text, *overrides)
    return error.value


# A line of the recipe with | where the fault is; what is said; how to mend it.
LINES = [
    ("|sead: 3", "sead: is not a known key", "did you mean `seed`?"),
    ('|seed: "3"', 'seed: is "3", expected an integer', ""),
    ("|seed: -1", "seed: is -1, expected 0 or more", ""),
    ("|miles: 2", "miles: is 2, expected 1", ""),
    ("|steps: 0", "steps: is 0, expected a number above 0", ""),
    ("buffer: {use: fifo, |capacity: .inf}", "buffer.capacity: is inf, expected a finite number", ""),
    ("buffer: {use: fifo, |capacity: .nan}", "buffer.capacity: is nan, expected a finite number", ""),
    ("buffer: {use: fifo, |capacity: 1e308}", "is 1e+308, expected a number between -1e+36 and 1e+36", ""),
    ("engine: {use: toy, |replicas: 1" + "0" * 30 + "}", "expected a number between -1.84467e+19 and 1.84467e+19", ""),
    ("generator: {use: single-turn, sampling: {max_new_tokens: 8, |top_p: .inf}}", "top_p: is inf, expected a", ""),
    ("rewards: [{use: match, |weight: -.inf}]", "rewards[0].weight: is -inf, expected a finite number", ""),
    ("|engine: toy", 'engine: is "toy", expected a mapping', "{use: toy}"),
    ("|rewards: {use: match}", "rewards: is a mapping, expected a list", ""),
    ("rewards: [|match]", 'rewards[0]: is "match", expected a mapping', "{use: match}"),
    ("|loss: {us: deep}", "loss.use: is required but not there", "write `use:` instead of `us:`"),
    ("loss: {|use: dep}", "there is no loss 'dep'; enabled: deep, toy", "did you mean 'deep'?"),
    ("loss: {|use: paired}", "there is no loss 'paired'", "'paired' is of kind advantage, not loss"),
    ("loss: {use: deep, |levle: token}", "loss.levle: is not a known key", "did you mean `level`?"),
    ("loss: {use: deep, |level: tokn}", "is \"tokn\", expected 'token' or 'sequence'", "did you mean token?"),
    ("loss: {use: deep, |flag: yes}", 'loss.flag: is "yes", expected true or false', ""),
    ("loss: {use: deep, |file: 3}", "loss.file: is 3, expected text", ""),
    ("loss: {use: deep, two: {|bounds: x}}", 'loss.two.bounds: is "x", expected a list or a number', ""),
    ("engine: {use: toy, |replicas: 1.5}", "engine.replicas: is 1.5, expected an integer", ""),
    ("engine: {use: toy, |replicsa: 2}", "engine.replicsa: is not a known key", "did you mean `replicas`?"),
    ("generator: {use: single-turn, sampling: {max_new_tokens: 8, |top_p: 0}}", "is 0, expected a number above 0", ""),
    ("generator: {use: single-turn, sampling: {max_new_tokens: 8, |topk: 0}}", "is not a known key", "`top_k`"),
    ("checkpoint: {|every: -1}", "checkpoint.every: is -1, expected 0 or more", ""),
    ("plugins: [toy, lab, |3]", "plugins[2]: is 3, expected text", ""),
]


@pytest.mark.parametrize(("marked", "says", "mend"), LINES)
def test_a_fault_has_its_place_value_expectation_and_mend(kitchen: Any, marked: str, says: str, mend: str) -> None:
    line = marked.replace("|", "")
    name, _, text = line.partition(": ")
    recipe = kitchen.changed(**{name: text})
    number = recipe.lstrip("\n").splitlines().index(line) + 1
    error = fails(kitchen, recipe)
    assert isinstance(error, RequestError) and error.exit_code == 2
    assert len(error.problems) == 1, str(error)
    problem = error.problems[0]
    assert problem.where == f"{kitchen.folder / 'recipe.yaml'}:{number}:{marked.index('|') + 1}"
    assert says in problem.what and mend in problem.mend


DEEP = """
loss:
  use: deep
  two:
    three:
      four:
        five:
          - limit: 1
          - limit: many
            estimatr: k1
        named:
          first: {estimator: k9}
"""


def test_five_levels_down_every_fault_has_its_own_line(kitchen: Any) -> None:
    error = fails(kitchen, kitchen.without("loss") + DEEP)
    offset = len((kitchen.without("loss")).lstrip("\n").splitlines())
    found = [(problem.where.rsplit(":", 2)[1:], problem.what) for problem in error.problems]
    assert found == [
        ([str(offset + 8), "13"], 'loss.two.three.four.five[1].limit: is "many", expected an integer'),
        ([str(offset + 9), "13"], "loss.two.three.four.five[1].estimatr: is not a known key"),
        ([str(offset + 11), "19"], "loss.two.three.four.named.first.estimator: is \"k9\", expected 'k1', 'k2' or 'k3'"),
    ]
    assert "did you mean `estimator`?" in error.problems[1].mend


def test_all_faults_come_at_once_in_the_order_of_the_file(kitchen: Any) -> None:
    text = """
        miles: 1
        plugins: [toy, nosuch]
        model: {use: toyy}
        data: {use: file}
        schedule: {use: sync, groups_per_step: 3, group_size: x}
        engine: toy
        trainer: {use: toy, lr: 1}
        loss: {use: toy}
        evaluate: [{use: shared, every: often}]
        stepps: 4
    """
    error = fails(kitchen, text)
    assert error.exit_code == 2
    paths = [problem.what.partition(":")[0].partition(";")[0] for problem in error.problems]
    lines = [int(problem.where.rsplit(":", 2)[1]) for problem in error.problems]
    assert lines == sorted(lines)
    expected = [
        "plugin 'nosuch' is not installed",
        "model.use",
        "data.path",
        "schedule.group_size",
        "engine",
        "trainer.lr",
    ]
    expected += ["evaluate[0].every", "stepps", "the recipe does not say how long it runs"]
    assert sorted(paths) == sorted(expected)


def test_an_override_is_the_place_of_its_fault(kitchen: Any) -> None:
    error = fails(kitchen, kitchen.changed(), "loss.level=tokn")
    assert error.problems[0].where == "--set loss.level=tokn"


def test_a_fault_of_a_python_recipe_has_its_path(kitchen: Any, recipe: dict[str, Any]) -> None:
    from miles_core.recipe.plan import load_plan

    with pytest.raises(RequestError, match=r"loss\.level: is \"tokn\""):
        load_plan({**recipe, "loss": {"use": "deep", "level": "tokn"}})


# Plugins


def test_a_misspelt_plugin(kitchen: Any) -> None:
    error = fails(kitchen, kitchen.changed(plugins="[toy, lba]"))
    assert error.exit_code == 2
    assert "plugin 'lba' is not installed" in error.problems[0].what
    assert error.problems[0].where.endswith("recipe.yaml:14:16")
    assert "did you mean 'lab'?" in error.problems[0].mend and "pip install miles-plugin-lba" in error.problems[0].mend


def test_components_of_a_missing_plugin_are_not_faults_of_their_own(kitchen: Any) -> None:
    error = fails(kitchen, kitchen.changed(plugins="[toy, lab, harbor]", rewards="[{use: harbor-verdict}]"))
    assert len(error.problems) == 1 and "plugin 'harbor' is not installed" in error.problems[0].what


def test_an_installed_plugin_that_is_not_enabled(kitchen: Any) -> None:
    error = fails(kitchen, kitchen.changed(plugins="[toy]"))
    assert error.exit_code == 2
    assert [problem.mend for problem in error.problems] == ['add "lab" to plugins:'] * 2
    assert "loss 'deep' is provided by miles-plugin-lab 0.4, which is not enabled" in str(error)


def test_a_component_that_nobody_provides(kitchen: Any) -> None:
    error = fails(kitchen, kitchen.changed(rewards="[{use: tau-bench}]"))
    assert "there is no reward 'tau-bench'" in error.problems[0].what
    assert "pip install miles-plugin-tau-bench" in error.problems[0].mend


def test_an_ambiguous_plugin_is_a_conflict(kitchen: Any) -> None:
    kitchen.site.distribution("other-lab", "9.9", plugins={"lab": "other_lab"})
    error = fails(kitchen, kitchen.changed())
    assert error.exit_code == 3 and isinstance(error, PluginError)
    assert "miles-plugin-lab 0.4" in str(error) and "other-lab 9.9" in str(error)
    assert kitchen.plan(kitchen.changed(plugins="[toy, miles-plugin-lab:lab]")).plugins[2].version == "0.4"


def test_a_plugin_for_another_core(kitchen: Any) -> None:
    kitchen.site.plugin("new", "raise SystemExit(0)", requires=["miles-core>=99"])
    error = fails(kitchen, kitchen.changed(plugins="[toy, lab, new]"))
    assert error.exit_code == 3 and "needs miles-core>=99" in str(error)


@pytest.mark.parametrize(
    "source", ["raise SystemExit(0)", "class B(BaseException): pass\nraise B", "def f(:", "import nope"]
)
def test_a_broken_plugin(kitchen: Any, source: str) -> None:
    kitchen.site.plugin("bad", source, "0.3.1")
    error = fails(kitchen, kitchen.changed(plugins="[toy, lab, bad]"))
    assert error.exit_code == 3
    assert "plugin bad (miles-plugin-bad 0.3.1) failed to load" in str(error)
    kitchen.plan()  # a run that does not enable it is not touched


def test_two_broken_plugins_and_a_good_one_that_is_still_validated(kitchen: Any) -> None:
    kitchen.site.plugin("one", "import nope")
    kitchen.site.plugin("two", "raise SystemExit(0)")
    error = fails(kitchen, kitchen.changed(plugins="[one, toy, lab, two]", loss="{use: deep, level: tokn}"))
    assert error.exit_code == 2  # the request is wrong too
    assert len(error.problems) == 3
    assert "plugin one" in str(error) and "plugin two" in str(error) and "loss.level" in str(error)


def test_a_component_with_a_broken_options_model_is_a_fault_of_its_plugin(kitchen: Any) -> None:
    kitchen.add_odd_plugin()
    error = fails(kitchen, kitchen.changed(plugins="[toy, lab, odd]", trackers="[{use: odd}]"))
    assert error.exit_code == 3
    assert "plugin odd (miles-plugin-odd 1.0)" in str(error) and "expected a subclass of miles_core.Options" in str(
        error
    )


# Contradictions


CONTRADICTIONS = [
    ({"trainer": "{use: toy, optimizer_steps: 5}"}, "trainer.optimizer_steps: is 5, which does not divide the 12"),
    (
        {"buffer": "{use: fifo, capacity: 0.3}"},
        "buffer.capacity: is 0.3: times 3 groups per step leaves room for no group",
    ),
    ({"generator": "{use: single-turn, sampling: {max_new_tokens: 100000}}"}, "but the context of"),
    ({"schedule": "{use: sync, groups_per_step: 3, group_size: 5}"}, "advantage: pairs need an even group_size, not 5"),
    ({"rewards": "[{use: match}, {use: match}]"}, 'rewards[1]: is the second reward named "match"'),
    ({"phases": "[{name: a, steps: 1}]"}, "phases: stands beside `steps:`"),
]


@pytest.mark.parametrize(("sections", "says"), CONTRADICTIONS)
def test_numbers_and_options_that_contradict_each_other(kitchen: Any, sections: dict[str, str], says: str) -> None:
    error = fails(kitchen, kitchen.changed(**sections))
    assert error.exit_code == 2 and len(error.problems) == 1
    assert says in error.problems[0].what
    assert error.problems[0].where.startswith(str(kitchen.folder / "recipe.yaml:"))


MISSING = [
    (("data",), "the recipe has no `data:`"),
    (("schedule",), "the recipe has no `schedule:`"),
    (("model",), "there is no `model:` for it"),
    (("loss",), "the recipe has a trainer but no `loss:`"),
    (("engine", "evaluate"), "generator 'single-turn' asks an engine for tokens, and the recipe has no `engine:`"),
    (("advantage",), "loss 'deep' needs `advantage:`, which the recipe lacks"),
    (("steps",), "does not say how long it runs"),
    (("miles",), "miles: is required"),
]


@pytest.mark.parametrize(("names", "says"), MISSING)
def test_a_section_that_another_one_needs(kitchen: Any, names: tuple[str, ...], says: str) -> None:
    error = fails(kitchen, kitchen.without(*names))
    assert error.exit_code == 2 and says in str(error)
    assert len(error.problems) == 1, str(error)


def test_evaluating_without_an_engine(kitchen: Any) -> None:
    text = kitchen.changed(generator="{use: demonstration}").replace("engine: {use: toy}", "")
    assert "the recipe evaluates but has no engine to generate with" in str(fails(kitchen, text))


def test_a_loss_without_a_trainer(kitchen: Any) -> None:
    error = fails(kitchen, kitchen.without("trainer"))
    assert ["`loss:` but no trainer" in str(error), "`advantage:` but no trainer" in str(error)] == [True, True]


def test_nothing_to_do(kitchen: Any) -> None:
    error = fails(kitchen, kitchen.without("engine", "trainer", "loss", "advantage", "evaluate"))
    assert "neither an engine nor a trainer" in str(error)


def test_faults_of_phases_have_their_place(kitchen: Any) -> None:
    text = (
        kitchen.without("steps")
        + "\nphases:\n  - {name: a, steps: 2}\n  - {name: a, steps: x, loss: null}\n  - {steps: 1}\n"
    )
    error = fails(kitchen, text)
    text = str(error)
    assert 'phases[1].steps: is "x", expected an integer' in text
    assert 'phases[1].name: is "a" again' in text
    assert "phases[2].name: is required but not there" in text
    assert "phase 'a' has a trainer but no `loss:`" in text


def test_an_empty_list_of_phases(kitchen: Any) -> None:
    assert "phases: is empty" in str(fails(kitchen, kitchen.without("steps") + "\nphases: []\n"))


def test_a_model_that_cannot_be_described_is_a_fault_at_its_line(kitchen: Any) -> None:
    kitchen.site.module(
        "miles_plugin_lab_model",
        "from miles_core import RequestError\nclass M:\n    def __init__(self, options, context): pass\n"
        "    def describe(self): raise RequestError('config.json is missing', where='/m', mend='download it')\n"
        "class Bug(M):\n    def describe(self): raise SystemExit(0)\n",
    )
    text = kitchen.changed(model="{use: miles_plugin_lab_model:M}")
    error = fails(kitchen, text)
    assert error.exit_code == 2 and "model: config.json is missing (/m)" in error.problems[0].what
    assert error.problems[0].mend == "download it"
    error = fails(kitchen, text.replace(":M}", ":Bug}"))
    assert error.exit_code == 3 and "SystemExit: 0" in str(error)


REWARD = """
from miles_core import Component, hookimpl
@hookimpl
def miles_rewards():
    return [Component("keyword", "miles_core.rollout.match_reward:MatchReward")]
"""


@pytest.mark.parametrize(("provides", "why"), [((), "is empty"), (("rewards.keyword",), "there is no kind 'rewards'")])
def test_an_installed_plugin_that_does_not_say_what_it_provides_is_not_installed_again(
    kitchen: Any, provides: tuple[str, ...], why: str
) -> None:
    kitchen.site.plugin("keyword", REWARD, provides=provides)
    with pytest.raises(RequestError) as error:
        kitchen.plan(kitchen.changed(rewards="[{use: keyword}]"))
    said = str(error.value)
    assert "plugin keyword (miles-plugin-keyword 1.0) may provide it" in said and why in said
    assert 'add "keyword" to plugins:' in said and "pip install" not in said


def test_a_distribution_without_an_entry_point_is_not_installed_again(kitchen: Any) -> None:
    info = kitchen.site.plugin("keyword", REWARD)
    (info / "entry_points.txt").write_text("[miles.plugin]\nkeyword = miles_plugin_keyword\n")
    with pytest.raises(RequestError, match=r"miles-plugin-keyword 1\.0 is installed, but has no entry point") as error:
        kitchen.plan(kitchen.changed(plugins="[toy, lab, keyword]"))
    assert "pip install" not in str(error.value)
