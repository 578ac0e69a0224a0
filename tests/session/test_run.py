"""Whole runs of the toy ring with an agent: they learn, repeat themselves, resume, and say what failed."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import pytest
import yaml

from miles_core import Disposition, MilesError, RequestError, resume, run
from miles_core.observe import jsonl
from miles_core.observe.trajectories import read_groups

AGENTS = '''
import asyncio
from openai import AsyncOpenAI, ConflictError, DefaultAsyncHttpxClient
from miles_core import Outcome

class Twice:
    """Asks twice; the verdict is the share of `a` in both answers."""

    def __init__(self, options, context):
        self.http = DefaultAsyncHttpxClient(verify=False)

    async def run(self, episode):
        client = AsyncOpenAI(base_url=episode.base_url, api_key=episode.api_key, http_client=self.http, max_retries=0)
        messages = list(episode.task.messages)
        said = ""
        for _ in range(2):
            completion = await client.chat.completions.create(model="m", messages=messages)
            choice = completion.choices[0]
            said += choice.message.content
            if choice.finish_reason == "length":
                break
            messages += [choice.message.model_dump(), {"role": "user", "content": "more"}]
        return Outcome(said.count("a") / max(len(said), 1), {"characters": len(said)})

class Fails(Twice):
    """Fails at every third attempt of a group."""

    def __init__(self, options, context):
        super().__init__(options, context)
        self.seen = 0

    async def run(self, episode):
        self.seen += 1
        if self.seen % 3 == 0:
            raise OSError("no sandbox")
        return await super().run(episode)

class Edits(Twice):
    """Changes what it sent, and goes on when that is refused."""

    async def run(self, episode):
        client = AsyncOpenAI(base_url=episode.base_url, api_key=episode.api_key, http_client=self.http)
        outcome = await super().run(episode)
        try:
            await client.chat.completions.create(model="m", messages=[{"role": "user", "content": "other"}])
        except ConflictError:
            return outcome

class Again(Twice):
    """Asks the same twice, and then something else."""

    async def run(self, episode):
        client = AsyncOpenAI(base_url=episode.base_url, api_key=episode.api_key, http_client=self.http, max_retries=0)
        for text in ("x", "x", "y"):
            completion = await client.chat.completions.create(model="m", messages=[{"role": "user", "content": text}])
        return Outcome(completion.choices[0].message.content.count("a") / 8)

class Leaves(Edits):
    """Writes down its key, which nobody else does, and fails sometimes."""

    async def run(self, episode):
        with open("keys.txt", "a") as file:
            print(episode.api_key, file=file)
        await super().run(episode)
        raise RuntimeError(f"gone wrong: {episode}")

class Broken(Twice):
    async def run(self, episode):
        raise OSError("no sandbox")
'''

BRANCHING = {"use": "agent", "history": "branching", "sampling": {"max_new_tokens": 8}}
RECIPE = {
    "miles": 1,
    "name": "agents",
    "seed": 1,
    "plugins": ["toy"],
    "model": {"use": "toy"},
    "data": {"use": "file", "path": "tasks.jsonl", "held_out": "held_out.jsonl"},
    "agent": {"use": "my_agents:Twice"},
    "generator": {"use": "agent", "sampling": {"max_new_tokens": 8}},
    "schedule": {"use": "sync", "groups_per_step": 2, "group_size": 4},
    "rewards": [{"use": "agent"}],
    "filters": [{"use": "unequal-rewards"}],
    "advantage": {"use": "toy"},
    "loss": {"use": "toy"},
    "engine": {"use": "toy", "replicas": 2},
    "trainer": {"use": "toy"},
    "evaluate": [{"use": "shared", "every": 0, "tasks": 4}],
    "checkpoint": {"every": 2},
    "steps": 4,
}


@pytest.fixture
def bench(tmp_path, monkeypatch):
    """Writes the recipe with sections replaced (None removes one) and gives its path."""
    monkeypatch.chdir(tmp_path)
    for name, count in (("tasks", 16), ("held_out", 4)):
        rows = [{"id": f"{name}{i}", "prompt": f"{name}{i}", "answer": "a"} for i in range(count)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "my_agents.py").write_text(AGENTS)

    def write(**changes):
        recipe = {key: value for key, value in {**RECIPE, **changes}.items() if value is not None}
        path = tmp_path / "recipe.yaml"
        path.write_text(yaml.safe_dump(recipe, sort_keys=False))
        return path

    return write


def deterministic(done) -> list[dict]:
    return [{k: v for k, v in record.items() if not k.startswith("time/")} for record in done.metrics]


def trajectories(done):
    for _, group, dispositions in read_groups(done.folder.trajectories):
        for trajectory in group.trajectories:
            yield trajectory, dispositions[trajectory.id]


def test_a_run_with_an_agent_learns_and_its_trajectories_are_several_turns(bench):
    done = run(bench(steps=6), runs_dir=Path("runs"), view="none")
    held_out = done.summary["evaluations"]["held-out"]
    assert held_out["after"] > held_out["before"] + 0.5
    turns, trained = Counter(), 0
    for trajectory, disposition in trajectories(done):
        assert trajectory.scores["Twice"].value == trajectory.scores["agent"].value == trajectory.reward
        turns[trajectory.metadata["session"]["turns"]] += 1
        (sequence,) = trajectory.sequences
        assert {span.turn for span in sequence.spans} == set(range(trajectory.metadata["session"]["turns"]))
        assert {span.engine for span in sequence.spans} <= {"engine-0", "engine-1"}
        assert len({span.engine for span in sequence.spans}) == 1  # a session stays on its engine
        trained += disposition is Disposition.TRAINED
    assert turns[2] > 0 and trained == 6 * 8


def test_the_same_recipe_gives_the_same_run_and_a_resumed_one(bench):
    first = run(bench(), runs_dir=Path("runs"), view="none")
    second = run(bench(), runs_dir=Path("runs"), view="none")
    assert deterministic(first) == deterministic(second)
    folder = second.folder.path
    shutil.rmtree(folder / "checkpoints" / "step-000004")
    second.folder.write_status(state="interrupted")
    assert deterministic(resume(folder, view="none")) == deterministic(first)


def test_an_agent_that_fails_is_a_failed_trajectory_and_the_rest_is_trained(bench):
    done = run(bench(agent={"use": "my_agents:Fails"}, evaluate=None, steps=2), runs_dir=Path("runs"), view="none")
    ends = Counter()
    for trajectory, disposition in trajectories(done):
        ends[disposition] += 1
        if disposition is Disposition.FAILED:
            assert trajectory.metadata["error"].startswith("OSError: no sandbox")
            assert trajectory.reward is None
    assert ends[Disposition.FAILED] > 0 and ends[Disposition.TRAINED] > 0


def test_refused_calls_are_counted_in_the_run(bench):
    done = run(bench(agent={"use": "my_agents:Edits"}, evaluate=None, steps=1), runs_dir=Path("runs"), view="none")
    notes = [event for event in jsonl.read(done.folder.events) if event["event"] == "note"]
    made = sum(1 for _ in trajectories(done))
    assert [note["history_diverged"] for note in notes] == [made]
    assert [record["session/refused/history_diverged"] for record in done.metrics] == [made]
    assert f"refused or failed calls: history_diverged {made}" in done.folder.report.read_text(encoding="utf-8")


def test_no_key_is_in_anything_that_a_run_leaves(bench, caplog, capfd):
    with pytest.raises(MilesError) as error:
        run(bench(agent={"use": "my_agents:Leaves"}, steps=1), runs_dir=Path("runs"))
    keys = Path("keys.txt").read_text().split()
    assert len(keys) == len(set(keys)) > 8 and all(len(key) == 32 for key in keys)  # 192 bits of randomness
    left = [path.read_bytes() for path in Path("runs").rglob("*") if path.is_file()]
    told = "".join([str(error.value), caplog.text, *capfd.readouterr()])
    assert left and "gone wrong: Episode(" in told
    assert not [key for key in keys if key in told or any(key.encode() in content for content in left)]


def test_each_step_counts_its_sessions(bench):
    done = run(
        bench(agent={"use": "my_agents:Again"}, generator=BRANCHING, steps=3), runs_dir=Path("runs"), view="none"
    )
    kept, dropped = Counter(), Counter()
    for step, group, _ in read_groups(done.folder.trajectories):
        for trajectory in group.trajectories:
            if step is not None:
                kept[step] += trajectory.metadata["session"]["turns"]
                dropped[step] += trajectory.metadata["session"].get("dropped_turns", 0)
    for record in done.metrics[:-1]:  # the last one's record has the sessions of the evaluation too
        step = record["step"]
        assert record["session/alive"] == record["session/expired"] == record["session/undelivered"] == 0
        assert record["session/opened"] == record["session/closed"]
        assert record["session/turns"] >= kept[step] + dropped[step] > 0
        assert record["session/forks"] == record["session/retries"] == record["session/opened"]
    page = done.folder.report.read_text(encoding="utf-8")
    assert "Prefix cache" in page and "asked again" in page and "refused or failed calls: none" in page


def test_when_every_attempt_fails_the_run_says_why(bench):
    with pytest.raises(MilesError, match="OSError: no sandbox"):
        run(bench(agent={"use": "my_agents:Broken"}, evaluate=None), runs_dir=Path("runs"), view="none")


def test_without_rewards_the_agents_verdict_is_the_reward_and_others_stand_beside_it(bench):
    own = run(bench(rewards=None, steps=1), runs_dir=Path("runs"), view="none")
    assert all(t.reward == t.scores["Twice"].value for t, _ in trajectories(own))
    other = run(bench(rewards=[{"use": "match", "mode": "contains"}], steps=1), runs_dir=Path("runs"), view="none")
    for trajectory, _ in trajectories(other):
        assert trajectory.reward == trajectory.scores["match"].value
        assert trajectory.scores["Twice"] is not None


def test_an_agent_generator_without_an_agent_is_refused_before_any_work(bench):
    with pytest.raises(RequestError, match="needs `agent:`"):
        run(bench(agent=None), runs_dir=Path("runs"), view="none")


def test_the_recipe_that_is_a_page_to_learn_from(bench, tmp_path):
    root = Path(__file__).parents[2]
    for name in ("recipes/toy-agent.yaml", "recipes/toy_agent.py"):
        (tmp_path / "recipes").mkdir(exist_ok=True)
        shutil.copy(root / name, tmp_path / name)
    shutil.copytree(root / "recipes" / "tiny", tmp_path / "recipes" / "tiny")
    done = run("recipes/toy-agent.yaml", steps=2, runs_dir=Path("runs"), view="none")
    assert done.summary["state"] == "done"


MATCHER = '''
class Prefix:
    """The stored content is where the replayed one begins: merges everything that a harness puts after a reply."""

    def __init__(self, options, context):
        pass

    def matches(self, stored, replayed):
        return replayed["content"].startswith(stored["content"])
'''


def test_a_recipe_names_a_matcher(bench):
    adding = AGENTS.replace("choice.message.model_dump()", '{"role": "assistant", "content": said + "!"}')
    errors, turns = {}, Counter()
    for name, matcher in (("Prefix", {"use": "my_matchers:Prefix"}), ("strict", None)):
        recipe = bench(matcher=matcher, filters=None, evaluate=None, steps=2)
        Path("my_agents.py").write_text(adding)
        Path("my_matchers.py").write_text(MATCHER)
        made = [each for each, _ in trajectories(run(recipe, runs_dir=Path("runs"), view="none"))]
        errors[name] = {each.metadata["error"] for each in made if "error" in each.metadata}
        turns.update((name, each.metadata["session"]["turns"]) for each in made if "session" in each.metadata)
    assert errors["Prefix"] == set() and turns["Prefix", 2] > 0
    assert errors["strict"] and all("history diverged" in error for error in errors["strict"])


def test_a_matcher_that_is_not_there_is_named_and_an_idle_one_is_told(bench):
    from miles_core.recipe.plan import load_plan

    with pytest.raises(RequestError, match="tool-arguments"):
        load_plan(bench(matcher={"use": "tool-argument"}))
    plan, _ = load_plan(
        bench(matcher={"use": "tool-arguments"}, generator={**RECIPE["generator"], "use": "single-turn"})
    )
    assert any("matcher 'tool-arguments' is never asked" in warning for warning in plan.warnings)


def test_a_program_is_an_agent(bench):
    program = {"use": "command", "run": ["python", "-m", "miles_core.testing.fakes.asking_program"], "concurrent": 2}
    schedule = {"use": "sync", "groups_per_step": 1, "group_size": 2}
    recipe = bench(agent=program, evaluate=None, filters=None, schedule=schedule, steps=1)
    done = run(recipe, runs_dir=Path("runs"), view="none")
    made = [trajectory for trajectory, _ in trajectories(done)]
    assert len(made) == 2
    for trajectory in made:
        assert trajectory.reward == float(trajectory.metadata["outcome"]["said"] == "a")
        assert trajectory.text == trajectory.metadata["outcome"]["said"]


UNMODIFIED = {
    "anthropic": """
import json, sys, anthropic
task = json.load(sys.stdin)
messages = task["prompt"]
client = anthropic.Anthropic()
first = client.messages.create(model="claude", max_tokens=4, messages=messages)
with client.messages.stream(model="claude", max_tokens=4, messages=messages) as stream:
    said = "".join(stream.text_stream)
print(json.dumps({"reward": float(said == task["answer"]), "said": said, "asked": 2}))
""",
    "openai": """
import json, sys, openai
task = json.load(sys.stdin)
messages = task["prompt"]
client = openai.OpenAI()
client.chat.completions.create(model="gpt", max_tokens=4, messages=messages)
stream = client.chat.completions.create(model="gpt", max_tokens=4, messages=messages, stream=True)
said = "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)
print(json.dumps({"reward": float(said == task["answer"]), "said": said, "asked": 2}))
""",
    "sh": """
ask() {
  curl -sS "$MILES_BASE_URL/chat/completions" -H "Authorization: Bearer $MILES_API_KEY" \\
    -H "Content-Type: application/json" -d '{"max_tokens": 4, "messages": [{"role": "user", "content": "hi"}]}'
}
ask && ask && echo && echo '{"reward": 0.5, "asked": 2}'
""",
}


@pytest.mark.parametrize("kind", UNMODIFIED)
def test_any_program_can_be_trained_unmodified(bench, kind):
    """It knows nothing of Miles: the clients find their session in their own variables, curl in ours."""
    if kind == "sh" and shutil.which("curl") is None:
        pytest.skip("there is no curl")
    recipe = bench(
        agent={"use": "command", "run": ["sh" if kind == "sh" else "python", "program"], "seconds": 100},
        schedule={"use": "sync", "groups_per_step": 1, "group_size": 2},
        evaluate=None,
        filters=None,
        steps=1,
    )
    Path("program").write_text(UNMODIFIED[kind])
    done = run(recipe, runs_dir=Path("runs"), view="none")
    made = list(trajectories(done))
    assert [disposition for _, disposition in made] == [Disposition.TRAINED] * 2, [t.metadata for t, _ in made]
    for trajectory, _ in made:
        assert trajectory.metadata["outcome"]["asked"] == 2
        assert trajectory.metadata["session"]["dropped_turns"] == 1  # asked again: the last answer counts
        assert trajectory.metadata["outcome"].get("said", trajectory.text) == trajectory.text
    assert done.metrics[0]["session/retries"] == 2
