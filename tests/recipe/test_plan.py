"""A recipe to a plan: components by value, sources, defaults, arithmetic, cards."""

import json
import pickle
from typing import Any

import pytest

from miles_core.recipe.plan import load_plan
from miles_core.recipe.render import plan_lines, plan_to_json
from miles_core.recipe.resolved import Plan, Source
from miles_core.recipe.written import leaves
from miles_core.recipe.yaml_text import dotted, dump


def test_components_are_resolved_by_value(kitchen: Any) -> None:
    plan, registry = kitchen.load()
    assert (plan.name, plan.seed, plan.steps, plan.replicas) == ("recipe", 7, 6, 1)
    assert [plugin.name for plugin in plan.plugins] == ["core", "toy", "lab"]
    assert plan.plugins[2].version == "0.4" and len(plan.plugins[2].record) == 64
    (phase,) = plan.phases
    assert phase.name == "main" and phase.loss is not None
    assert (phase.loss.kind, phase.loss.name, phase.loss.distribution) == ("loss", "deep", "miles-plugin-lab")
    assert phase.loss.options["level"] == "token" and phase.loss.options["two"]["three"] is None
    assert phase.sampling.max_new_tokens == 8
    assert phase.rewards[0].name == "match" and phase.rewards[0].weight == 1.0
    assert phase.facts.chosen["engine"] == ("toy",) and phase.facts.model is plan.model_card
    assert plan.model_card is not None and plan.model_card.name
    assert [plugin.name for plugin in registry.plugins] == ["core", "toy", "lab"]


def test_a_plan_travels(kitchen: Any) -> None:
    plan = kitchen.plan()
    assert pickle.loads(pickle.dumps(plan)) == plan


def test_what_the_recipe_leaves_open_has_defaults(kitchen: Any) -> None:
    plan = kitchen.plan()
    (phase,) = plan.phases
    assert (phase.rollout.name, phase.buffer.name, phase.generator.name) == ("groups", "fifo", "single-turn")
    assert phase.buffer.options["capacity"] == 2.0
    assert plan.transport is not None and plan.transport.name == "shared-memory"
    assert plan.precision is not None and plan.precision.name == "fp32" and plan.runtime.name == "local"
    assert (plan.checkpoint_every, plan.checkpoint_keep) == (0, 2)
    assert phase.correction is None and phase.staleness is None and phase.filters == ()


def test_every_value_says_where_it_came_from(kitchen: Any) -> None:
    plan = kitchen.plan(kitchen.changed(transport="{use: auto}"), "schedule.group_size=2", "loss.two={bounds: [0, 2]}")
    file = str(plan.file)
    assert plan.sources["schedule.groups_per_step"] == Source("recipe", f"{file}:6")
    assert plan.sources["schedule.group_size"] == Source("command line", "--set schedule.group_size=2")
    assert plan.sources["loss.two.bounds"] == Source("command line", "--set loss.two={bounds: [0, 2]}")
    assert plan.sources["loss.two.three"] == Source("default", "loss deep of miles-plugin-lab")
    assert plan.sources["generator.sampling.temperature"] == Source("default", "miles-core")
    assert plan.sources["rollout.use"] == Source("default", "miles-core")
    assert plan.sources["transport.use"] == Source("default", "auto: engines and trainer share one machine")
    assert set(plan.sources) == {dotted(parts) for parts, _ in leaves(plan.recipe)}


def test_the_resolved_recipe_is_a_recipe_that_resolves_to_the_same(kitchen: Any) -> None:
    plan = kitchen.plan(PHASES, "phases[1].loss.two.bounds=[0, 1]")
    again = load_plan(kitchen.write(dump(plan.recipe), "again.yaml"))[0]
    assert again.recipe == plan.recipe and again.phases == plan.phases and again.plugins == plan.plugins
    assert not [path for path, source in again.sources.items() if source.kind != "recipe"]
    assert load_plan(plan.recipe)[0].phases == plan.phases


def test_a_recipe_from_python_is_the_same_recipe(kitchen: Any, recipe: dict[str, Any]) -> None:
    from_file = kitchen.plan()
    plan = load_plan({**recipe, "name": "recipe"})[0]
    assert plan.phases == from_file.phases and plan.file is None


NUMBERS = {
    "steps": 6,
    "groups per step": 3,
    "trajectories per group": 4,
    "trajectories per step": 12,
    "tasks drawn in all": 18,
    "trajectories in all": 72,
    "sampled tokens per step, at most": 96,
    "sampled tokens at most in all": 576,
    "optimizer steps per batch": 2,
    "trajectories per optimizer step": 6,
    "optimizer steps in all": 12,
    "groups that the buffer holds": 6,
    "tasks of each shared evaluation": 16,
}


def test_the_batch_arithmetic(kitchen: Any) -> None:
    assert dict(kitchen.plan(kitchen.changed(trainer="{use: toy, optimizer_steps: 2}")).arithmetic) == NUMBERS


PHASES = """
miles: 1
plugins: [toy, lab]
model: {use: toy}
data: {use: file, path: tasks.jsonl}
schedule: {use: sync, groups_per_step: 2, group_size: 2}
generator: {use: demonstration}
loss: {use: toy}
rewards: [{use: match, weight: 0.5}]
engine: {use: toy, replicas: 2}
trainer: {use: toy}
phases:
  - {name: learn, steps: 3, rewards: []}
  - name: improve
    steps: 5
    generator: {use: single-turn, sampling: {max_new_tokens: 4}}
    schedule: {use: sync, groups_per_step: 4, group_size: 4}
    advantage: {use: paired}
    loss: {use: deep}
"""


def test_a_phase_replaces_sections_whole(kitchen: Any) -> None:
    plan = kitchen.plan(PHASES)
    learn, improve = plan.phases
    assert (learn.name, learn.steps, improve.name, improve.steps, plan.steps) == ("learn", 3, "improve", 5, 8)
    assert (learn.generator.name, improve.generator.name) == ("demonstration", "single-turn")
    assert (learn.sampling.max_new_tokens, improve.sampling.max_new_tokens) == (256, 4)
    assert learn.advantage is None and improve.advantage is not None
    assert learn.rewards == () and improve.rewards[0].weight == 0.5
    assert (learn.facts.group_size, improve.facts.group_size) == (2, 4)
    assert learn.data == improve.data and plan.replicas == 2


def test_the_arithmetic_of_phases_adds_up(kitchen: Any) -> None:
    numbers = dict(kitchen.plan(PHASES).arithmetic)
    assert numbers["steps in all phases"] == 8
    assert numbers["trajectories in all"] == 3 * 4 + 5 * 16
    assert numbers["sampled tokens at most in all"] == 5 * 16 * 4
    assert "learn: sampled tokens per step, at most" not in numbers


def test_null_in_a_phase_takes_a_section_away(kitchen: Any) -> None:
    text = kitchen.changed(correction="{use: lab:none}").replace("steps: 6", "")
    text = kitchen.without("steps", "trainer", "loss", "advantage")
    text += "\nphases:\n  - {name: a, steps: 1, evaluate: null}\n  - {name: b, steps: 1}\n"
    plan = kitchen.plan(text)
    assert plan.phases[0].evaluators == () and len(plan.phases[1].evaluators) == 1
    again = load_plan(plan.recipe)[0]
    assert again.phases == plan.phases


def test_rollouts_alone_need_no_trainer(kitchen: Any) -> None:
    plan = kitchen.plan(kitchen.without("trainer", "loss", "advantage"))
    assert plan.trainer is None and plan.transport is None and plan.phases[0].loss is None
    assert "optimizer steps in all" not in dict(plan.arithmetic)


def test_supervised_learning_alone_needs_no_engine(kitchen: Any) -> None:
    text = kitchen.changed(loss="{use: toy}", generator="{use: demonstration}")
    text = "\n".join(
        line for line in text.splitlines() if line.partition(":")[0] not in ("engine", "evaluate", "advantage")
    )
    plan = kitchen.plan(text)
    assert plan.engine is None and plan.replicas == 0 and plan.transport is None


def test_the_algorithm_card_is_in_the_components_own_words(kitchen: Any) -> None:
    plan = kitchen.plan(kitchen.changed(advantage="{use: paired, scale: 2.5}"))
    assert ("advantage paired: scale", "times 2.5") in plan.card


def test_advantages_without_rewards_are_a_warning(kitchen: Any) -> None:
    assert "no rewards" in kitchen.plan(kitchen.without("rewards")).warnings[0]
    assert kitchen.plan().warnings == ()


def test_a_default_stays_the_cores_when_a_plugin_takes_its_name(kitchen: Any) -> None:
    kitchen.site.plugin(
        "rival",
        "from miles_core import Component, hookimpl\n@hookimpl\ndef miles_buffers():\n"
        "    return [Component('fifo', 'miles_plugin_lab_parts:Any')]\n",
    )
    plan = kitchen.plan(kitchen.changed(plugins="[toy, lab, rival]"))
    assert plan.phases[0].buffer.distribution == "miles-core"
    assert plan.recipe["buffer"]["use"] == "miles-core:fifo"
    assert load_plan(plan.recipe)[0].phases == plan.phases


def test_planning_builds_nothing_but_the_model_spec(kitchen: Any) -> None:
    plan = kitchen.plan(kitchen.changed(trackers="[{use: heavy}]"))
    assert plan.trackers[0].factory == "miles_plugin_lab_heavy:Any"


def test_json_and_text_of_a_plan(kitchen: Any) -> None:
    plan: Plan = kitchen.plan(PHASES)
    data = json.loads(json.dumps(plan_to_json(plan), allow_nan=False))
    assert data["recipe"] == json.loads(json.dumps(plan.recipe))
    assert data["sources"]["loss.use"] == {"kind": "recipe", "where": f"{plan.file}:7"}
    assert data["phases"][1]["components"]["loss"]["options"]["level"] == "token"
    assert data["phases"][0]["components"]["advantage"] is None
    lines = plan_lines(plan)
    text = "\n".join(lines)
    for heading in ("plugins", "values", "model", "algorithm card", "arithmetic"):
        assert heading in lines
    assert any(line.split()[:2] == ["engine.replicas", "2"] and f"{plan.file}:9" in line for line in lines)
    assert "times 1.0" in text and "steps in all phases" in text


def test_an_infinite_option_leaves_the_json_valid(kitchen: Any) -> None:
    plan = kitchen.plan(kitchen.changed(advantage="{use: paired, scale: .inf}"))
    assert plan.phases[0].advantage.options["scale"] == float("inf")
    data = json.dumps(plan_to_json(plan), allow_nan=False)
    assert json.loads(data)["recipe"]["advantage"]["scale"] == "inf"
    assert load_plan(kitchen.write(dump(plan.recipe), "again.yaml"))[0].phases == plan.phases


@pytest.mark.parametrize("name", ["-x", "a/b", ""])
def test_a_name_that_is_no_folder_name_is_refused(kitchen: Any, name: str) -> None:
    with pytest.raises(Exception, match="name: is"):
        kitchen.plan(kitchen.changed(name=f'"{name}"'))
