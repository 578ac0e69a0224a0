"""The sections `agent:` and `middleware:`: kinds, needs, warnings, what is written and shown."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from miles_core import RequestError
from miles_core.recipe.devices import shows_gpu
from miles_core.recipe.json_schema import recipe_schema
from miles_core.recipe.plan import load_plan
from miles_core.recipe.render import plan_lines, plan_to_json

PLUGIN = """
from miles_core import Component, hookimpl

@hookimpl
def miles_agents():
    return [Component("solver", "miles_plugin_lab_parts:Any", "miles_plugin_actors_options:Solver")]

@hookimpl
def miles_generators():
    return [Component("asks", "miles_plugin_lab_parts:Any", capabilities=frozenset({"needs-agent"}))]
"""

OPTIONS = """
from miles_core import Options

class Solver(Options):
    turns: int = 3
"""


@pytest.fixture
def actors(kitchen: Any) -> Any:
    kitchen.site.plugin("actors", PLUGIN, provides=["agent.solver", "generator.asks"])
    kitchen.site.module("miles_plugin_actors_options", OPTIONS)
    return kitchen


def recipe(actors: Any, **sections: str) -> str:
    text: str = actors.changed(plugins="[toy, lab, actors]", **sections)
    return text


def test_a_generator_that_needs_an_agent_is_refused_without_one(actors: Any) -> None:
    with pytest.raises(RequestError, match="generator 'asks' needs `agent:`, which the recipe lacks"):
        actors.plan(recipe(actors, generator="{use: asks}"))


def test_agent_and_middleware_are_planned_written_and_shown(actors: Any) -> None:
    sections = {
        "generator": "{use: asks, sampling: {max_new_tokens: 8}}",
        "agent": "{use: solver}",
        "middleware": "[{use: trace}, {use: limit, concurrent: 2}]",
    }
    plan = actors.plan(recipe(actors, **sections))
    (phase,) = plan.phases
    assert phase.agent is not None and (phase.agent.kind, phase.agent.options) == ("agent", {"turns": 3})
    assert plan.recipe["agent"] == {"use": "solver", "turns": 3}
    assert [each["use"] for each in plan.recipe["middleware"]] == ["trace", "limit"]
    assert plan.warnings == ()
    shown = plan_to_json(plan)["phases"][0]["components"]
    assert shown["agent"]["component"] == "solver"
    assert [each["component"] for each in shown["middleware"]] == ["trace", "limit"]
    assert any(line.split()[:2] == ["agent.turns", "3"] for line in plan_lines(plan))
    again, _ = load_plan(actors.write(yaml.safe_dump(dict(plan.recipe)), "again.yaml"))
    assert again.recipe == plan.recipe and again.phases == plan.phases


def test_an_agent_that_nobody_asks_is_a_warning(actors: Any) -> None:
    plan = actors.plan(recipe(actors, agent="{use: solver}"))
    assert plan.warnings == ("agent 'solver' is never asked: generator 'single-turn' works without one",)


def test_a_phase_replaces_or_removes_them(actors: Any) -> None:
    text = actors.without("steps", "plugins", "evaluate") + (
        "\nplugins: [toy, lab, actors]\nagent: {use: solver}\nmiddleware: [{use: trace}]\nphases:\n"
        "  - {name: one, steps: 1, generator: {use: asks, sampling: {max_new_tokens: 8}}}\n"
        "  - {name: two, steps: 1, agent: null, middleware: []}\n"
    )
    plan = actors.plan(text)
    one, two = plan.phases
    assert one.agent is not None and [each.name for each in one.middleware] == ["trace"]
    assert two.agent is None and two.middleware == ()
    again, _ = load_plan(actors.write(yaml.safe_dump(dict(plan.recipe)), "again.yaml"))
    assert again.phases == plan.phases


def test_the_plan_shows_capabilities_and_warns_of_a_gpu_that_is_not_there(
    actors: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    heavy = "from miles_core import Component, hookimpl\n@hookimpl\ndef miles_agents(): return ["
    heavy += "Component('heavy', 'miles_plugin_lab_parts:Any', capabilities=frozenset({'needs-gpu', 'x-fast'}))]\n"
    actors.site.plugin("heavy", heavy)
    sections = {"agent": "{use: heavy}", "generator": "{use: asks, sampling: {max_new_tokens: 8}}"}
    text = actors.changed(plugins="[toy, lab, actors, heavy]", **sections)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    plan = actors.plan(text)
    assert plan.warnings == ("agent 'heavy' needs a GPU, and this machine shows none",)
    assert ("agent", "heavy", ("needs-gpu", "x-fast")) in plan.capabilities
    assert {"kind": "generator", "component": "asks", "capabilities": ["needs-agent"]} in plan_to_json(plan)[
        "capabilities"
    ]
    assert any(line.split() == ["agent", "heavy", "needs-gpu,", "x-fast"] for line in plan_lines(plan))
    monkeypatch.setattr("miles_core.recipe.rules.shows_gpu", lambda: True)
    assert actors.plan(text).warnings == ()


def test_a_gpu_is_told_by_its_device_node(tmp_path: Path) -> None:
    assert not shows_gpu({}, tmp_path)
    (tmp_path / "nvidiactl").touch()
    assert not shows_gpu({}, tmp_path)
    (tmp_path / "nvidia0").touch()
    assert shows_gpu({}, tmp_path) and shows_gpu({"CUDA_VISIBLE_DEVICES": "0"}, tmp_path)
    assert not shows_gpu({"CUDA_VISIBLE_DEVICES": ""}, tmp_path)


def test_faults_in_them_are_all_listed(actors: Any) -> None:
    with pytest.raises(RequestError) as caught:
        actors.plan(recipe(actors, agent="{use: solvr}", middleware="[{use: trace, fil: x}, {use: limits}]"))
    text = str(caught.value)
    for part in ("agent.use", "did you mean 'solver'?", "middleware[0].fil", "middleware[1].use", "'limit'?"):
        assert part in text


def test_an_editor_completes_them(actors: Any) -> None:
    schema = recipe_schema(["actors"])
    assert schema["properties"]["agent"]["oneOf"][0] == {"$ref": "#/$defs/section.agent"}
    assert schema["properties"]["middleware"]["oneOf"][0]["type"] == "array"
    assert schema["$defs"]["agent.solver"]["properties"]["turns"]["type"] == "integer"
    assert {"agent", "middleware"} <= set(schema["$defs"]["recipe.PhaseSection"]["properties"])
