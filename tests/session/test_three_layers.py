"""A third party's installed plugin replaces one of the three layers and gets the layers inside it for free."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import pytest
import yaml

from miles_core import Disposition, run
from miles_core.loop.audit import audit
from miles_core.observe.trajectories import read_groups
from miles_core.testing.installing import SitePackages

PLUGIN = """
from miles_core import Component, hookimpl

@hookimpl
def miles_agents():
    return [Component("third-agent", factory="third_layers:TwoQuestions")]

@hookimpl
def miles_generators():
    return [Component("third-generator", factory="third_layers:BestOfTwo", capabilities=("needs-agent",))]

@hookimpl
def miles_rollouts():
    return [Component("third-rollout", factory="third_layers:OneByOne")]
"""

LAYERS = '''
import asyncio

import openai

from miles_core import (
    Attempt, Episode, Group, GenerateContext, Outcome, RolloutContext, Score, SessionRules, Status, Trajectory,
)


class TwoQuestions:
    """The agent layer: an endpoint and a key, never a token."""

    def __init__(self, options, context):
        pass

    async def run(self, episode):
        messages, said = list(episode.task.messages), ""
        async with openai.AsyncOpenAI(base_url=episode.base_url, api_key=episode.api_key, max_retries=0) as client:
            for question in ("Sure?", ""):
                completion = await client.chat.completions.create(model="m", messages=messages)
                choice = completion.choices[0]
                said += choice.message.content
                if choice.finish_reason == "length":
                    break
                messages += [choice.message.model_dump(), {"role": "user", "content": question}]
        return Outcome(said.count("a") / max(len(said), 1), {"by": "third-agent"})


class BestOfTwo:
    """The generate layer: opens sessions for whatever agent the recipe has, and keeps the better of two episodes."""

    needs_engine = True

    def __init__(self, options, context):
        pass

    async def generate(self, attempt: Attempt, context: GenerateContext) -> Trajectory:
        address = await context.sessions.open(attempt, SessionRules("branching", context.matcher))
        try:
            episode = Episode(
                attempt.task, address.base_url, address.api_key, attempt.sampling, context.deadline, asyncio.Event()
            )
            outcomes = [await context.agent.run(episode) for _ in range(2)]
            collected = await context.sessions.collect(address.api_key)
        finally:
            await context.sessions.close(address.api_key)
        return Trajectory(
            id=attempt.id,
            task_id=attempt.task.id,
            index=attempt.index,
            sequences=collected.sequences,
            status=Status.TRUNCATED if collected.truncated else Status.COMPLETED,
            text=collected.text,
            scores={context.agent_name: Score(max(outcome.reward for outcome in outcomes))},
            metadata={"by": "third-generator", "session": dict(collected.facts)},
        )


class OneByOne:
    """The rollout layer: one group after the other, generated, scored and put; nothing of how that is done."""

    def __init__(self, options, context):
        self.number, self.wanted = 0, 0
        self.woken, self.idle = asyncio.Event(), asyncio.Event()
        self.idle.set()

    async def start(self, context: RolloutContext):
        self.context = context
        self.task = asyncio.create_task(self.work())

    def grant(self, groups):
        self.wanted += groups
        self.idle.clear()
        self.woken.set()

    async def work(self):
        try:
            while True:
                while self.wanted:
                    await self.one()
                self.idle.set()
                await self.woken.wait()
                self.woken.clear()
        except Exception as error:
            self.context.buffer.end(error)

    async def one(self):
        context, draw = self.context, self.context.data.draw()
        number, self.number = self.number, self.number + 1
        made = []
        for index in range(context.group_size):
            place = (number, draw.draw, index)
            attempt = Attempt(f"g{number}.{index}", draw.task, *place, "rollout", context.sampling, context.seed)
            made.append(await context.generate(attempt))
        group = await context.score(Group(draw.task, number, draw.draw, tuple(made)))
        self.wanted -= (await context.buffer.put(group)).keep

    async def drain(self):
        await self.idle.wait()

    def state(self):
        return {"number": self.number}

    def restore(self, state):
        self.number = state["number"]

    async def close(self):
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
'''

SHORT = {"sampling": {"max_new_tokens": 8}}
RECIPE = {
    "miles": 1,
    "name": "three-layers",
    "seed": 1,
    "plugins": ["toy", "three-layers"],
    "model": {"use": "toy"},
    "data": {"use": "file", "path": "tasks.jsonl"},
    "agent": {"use": "third-agent"},
    "generator": {"use": "agent", **SHORT},
    "schedule": {"use": "sync", "groups_per_step": 2, "group_size": 4},
    "rewards": [{"use": "agent"}],
    "advantage": {"use": "toy"},
    "loss": {"use": "toy"},
    "engine": {"use": "toy"},
    "trainer": {"use": "toy"},
    "runtime": {"use": "in-process"},
    "steps": 2,
}
SINGLE = {
    "agent": None,
    "generator": {"use": "single-turn", **SHORT},
    "rewards": [{"use": "match", "mode": "contains"}],
}


@pytest.fixture
def site(tmp_path, monkeypatch):
    packages = SitePackages(tmp_path / "site-packages")
    packages.module("third_layers", LAYERS)
    provides = ("agent.third-agent", "generator.third-generator", "rollout.third-rollout")
    packages.plugin("three-layers", PLUGIN, provides=provides)
    monkeypatch.syspath_prepend(str(packages.folder))
    monkeypatch.chdir(tmp_path)
    rows = [{"id": f"t{i}", "prompt": f"question {i}", "answer": "a"} for i in range(8)]
    Path("tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    yield packages
    for name in ("third_layers", "miles_plugin_three_layers"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize(
    ("changes", "by", "turns"),
    [
        ({}, "third-agent", (1, 2)),
        ({"generator": {"use": "third-generator", **SHORT}}, "third-generator", (1, 2, 3, 4)),
        ({"rollout": {"use": "third-rollout"}}, "third-agent", (1, 2)),
        ({"rollout": {"use": "third-rollout"}, **SINGLE}, "", ()),
        (
            {"rollout": {"use": "third-rollout"}, "generator": {"use": "third-generator", **SHORT}},
            "third-generator",
            (1, 2, 3, 4),
        ),
    ],
    ids=["agent", "generator", "rollout", "rollout around single turns", "all three"],
)
def test_a_layer_is_replaced_alone(site, changes, by, turns):
    recipe = {key: value for key, value in {**RECIPE, **changes}.items() if value is not None}
    Path("recipe.yaml").write_text(yaml.safe_dump(recipe))
    done = run("recipe.yaml", runs_dir=Path("runs"), view="none")
    ends = Counter()
    for _, group, dispositions in read_groups(done.folder.trajectories):
        for trajectory in group.trajectories:
            ends[dispositions[trajectory.id]] += 1
            told = trajectory.metadata
            assert not by or by == told.get("by", told.get("outcome", {}).get("by"))
            assert not by or told["agent"] == "third-agent"
            assert not by or told["session"]["turns"] in turns
            assert sum(sequence.sampled.sum() for sequence in trajectory.sequences) > 0
    assert ends == {Disposition.TRAINED: 16}
    assert done.metrics[-1]["step"] == 1
    assert ("session/turns" in done.metrics[-1]) == bool(by)
    found = audit(done.folder)
    assert found.ok, found
    locked = json.loads((done.folder.path / "plugins.lock").read_text())["plugins"]
    assert "miles-plugin-three-layers" in {plugin["distribution"] for plugin in locked}
