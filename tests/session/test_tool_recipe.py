"""The calculator of recipes/tool-calculator.yaml: its tasks, its script, and what its demonstrations show."""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from serving import check_against_log, served

from miles_core import BuildContext, Episode
from miles_core.recipe.plan import load_plan
from miles_core.testing import CharToolRenderer, ScriptedEngine, make_attempt
from miles_core.types.sampling import Sampling

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture
def script(monkeypatch):
    monkeypatch.syspath_prepend(str(RECIPES))
    import tool_calculator

    yield tool_calculator
    sys.modules.pop("tool_calculator", None)


def made(script, seed=1, **options):
    return script.Sums(script.Sums.Options(**options), BuildContext(seed=seed, name="data"))


def as_sampled(task) -> list[str]:
    """The demonstration's turns, as a model would say them in the tests' format."""
    return [
        "".join(
            f"<call>{c['function']['name']} {c['function']['arguments']}</call>" for c in turn.get("tool_calls", ())
        )
        + turn["content"]
        for turn in task.metadata["demonstration"]
        if turn["role"] == "assistant"
    ]


async def episode_of(script, task, answers):
    engine = ScriptedEngine(answers)
    agent = script.Calculating(script.Calculating.Options(), BuildContext(seed=1, name="agent"))
    async with served(engine, CharToolRenderer()) as server:
        attempt = make_attempt(task, sampling=Sampling(max_new_tokens=100))
        address = await server.open(attempt)
        episode = Episode(task, address.base_url, address.api_key, attempt.sampling, None, asyncio.Event())
        outcome = await agent.run(episode)
        return outcome, await server.collect(address.api_key), engine


async def test_what_is_demonstrated_is_right(script):
    data = made(script)
    for _ in range(6):
        task = data.draw().task
        outcome, collected, engine = await episode_of(script, task, as_sampled(task))
        assert outcome.reward == 1.0 and outcome.metadata["failures"] == 0
        assert collected.turns == outcome.metadata["calls"] + 1 == len(engine.log)
        check_against_log(collected.sequences[0], engine.log)


@pytest.mark.parametrize(
    "answers",
    [
        ["12"],
        ['<call>calculator {"expression": "1 * 2"}</call>', "6"],
        ['<call>calculator {"other": 1}</call><call>abacus {"expression": "1 + 2"}</call>', "3"],
        ['<call>calculator {"expression": "1 + 2"}</call>'] * 4,
        ["x" * 200],
    ],
)
async def test_anything_else_is_wrong_and_nothing_breaks(script, answers):
    task = replace(made(script).draw().task, answer="-1")
    outcome, _, _ = await episode_of(script, task, answers)
    assert outcome.reward == 0.0


def test_no_sum_is_both_trained_on_and_measured(script):
    data = made(script)
    held_out = data.held_out(200)
    drawn = [data.draw().task for _ in range(2000)]
    assert len({task.id for task in drawn}) == 2000 and len({task.id for task in held_out}) == 200
    assert {task.prompt[-1]["content"] for task in held_out}.isdisjoint(task.prompt[-1]["content"] for task in drawn)
    state = json.loads(json.dumps(data.state()))
    following = data.draw().task
    again = made(script)
    again.restore(state)
    assert again.draw().task == following


def test_the_recipe_is_right(script, monkeypatch):
    monkeypatch.chdir(RECIPES.parent)
    plan, _ = load_plan(RECIPES / "tool-calculator.yaml")
    assert [phase.generator.name for phase in plan.phases] == ["demonstration", "agent"]
    assert plan.warnings == ()
