"""Middleware and agents in whole runs of the toy ring: composed once, in the recipe's order, on both paths."""

from __future__ import annotations

import json
import shutil

import pytest

from miles_core import MilesError, PluginError, RequestError, resume, run
from miles_core.recipe.plan import load_plan

CODE = '''
from miles_core import (
    AgentMiddleware, GeneratorMiddleware, Options, Outcome, RolloutMiddleware, Status, Trajectory,
)

seen = []
built = []

class Named(Options):
    name: str = "x"

class Outer(GeneratorMiddleware):
    Options = Named
    def __init__(self, options, context):
        self.name = options.name
        built.append(options.name)
    async def generate(self, attempt, context):
        seen.append((self.name, attempt.purpose))
        return await self.inner.generate(attempt, context)

class Loud(AgentMiddleware):
    def __init__(self, options, context):
        pass
    async def run(self, episode):
        seen.append("loud")
        return await self.inner.run(episode)

class Counting(RolloutMiddleware):
    """Has a state of its own, beside the inner one's."""
    def __init__(self, options, context):
        self.granted = 0
    def grant(self, groups):
        self.granted += groups
        self.inner.grant(groups)
    def state(self):
        return {"granted": self.granted, "inner": dict(self.inner.state())}
    def restore(self, state):
        self.granted = state["granted"]
        self.inner.restore(state["inner"])

class Says:
    def __init__(self, options, context):
        pass
    async def run(self, episode):
        return Outcome(0.5)

class Asks:
    """A generator that runs the phase's agent and then generates as usual."""
    needs_engine = True
    def __init__(self, options, context):
        from miles_core.rollout.single_turn import SingleTurn
        self.usual = SingleTurn()
    async def generate(self, attempt, context):
        outcome = await context.agent.run(None)
        assert outcome.reward == 0.5
        return await self.usual.generate(attempt, context)

class NoLayer:
    def __init__(self, options, context):
        self.layer = "engine"
    def wrap(self, inner):
        return inner

class NoWrap:
    layer = "agent"
    def __init__(self, options, context):
        pass

class Halved:
    layer = "rollout"
    def __init__(self, options, context):
        pass
    def wrap(self, inner):
        return object()

class Leaves:
    layer = "generator"
    def __init__(self, options, context):
        pass
    def wrap(self, inner):
        raise SystemExit(0)
'''


@pytest.fixture
def lab(bench):
    """The bench with middleware beside the recipe; what the module remembers is emptied."""
    (bench.folder / "wrapping.py").write_text(CODE)
    return bench


def module():
    import wrapping

    return wrapping


def go(lab, **changes):
    recipe = lab.recipe(**{"runtime": {"use": "in-process"}, "steps": 2, **changes})
    return run(recipe, runs_dir=lab.runs, view="none")


def metrics(done):
    return [{k: v for k, v in record.items() if not k.startswith("time/")} for record in done.metrics]


def test_the_first_is_outermost_and_evaluations_go_through_it(lab):
    done = go(lab, middleware=[{"use": "wrapping:Outer", "name": "a"}, {"use": "wrapping:Outer", "name": "b"}])
    seen = module().seen
    assert {purpose for _, purpose in seen} == {"rollout", "evaluation/held-out"}
    trajectories = sum(record["rollout/trajectories"] for record in done.metrics)
    assert len(seen) >= 2 * (trajectories + 2 * 8)
    names = [name for name, _ in seen]
    assert names.count("a") == names.count("b") and names[0] == "a"
    assert module().built == ["a", "b", "a", "b"]  # for the rehearsal and for the run
    assert metrics(done) == metrics(go(lab))


def test_an_evaluation_that_no_generator_of_the_recipe_makes_goes_through_it_too(lab):
    go(
        lab,
        generator={"use": "demonstration", "sampling": {"max_new_tokens": 8}},
        advantage=None,
        filters=None,
        rewards=[{"use": "toy_rewards:share_of_a"}],
        middleware=[{"use": "wrapping:Outer"}],
        steps=1,
    )
    assert {purpose for _, purpose in module().seen} == {"rollout", "evaluation/held-out"}


def test_a_rollout_with_state_of_its_own_resumes(lab):
    recipe = {"middleware": [{"use": "wrapping:Counting"}], "steps": 4}
    whole = go(lab, **recipe)
    broken = go(lab, **recipe)
    status = json.loads(broken.folder.status.read_text())
    broken.folder.status.write_text(json.dumps({**status, "state": "failed"}))
    shutil.rmtree(broken.folder.checkpoints / "step-000004")
    state = json.loads((broken.folder.checkpoints / "step-000002" / "state.json").read_text())
    assert state["phases"][0]["rollout"]["granted"] == 6
    assert metrics(resume(broken.folder.path, view="none")) == metrics(whole)


def test_an_agent_reaches_its_generator_inside_its_middleware(lab):
    done = go(
        lab,
        agent={"use": "wrapping:Says"},
        generator={"use": "wrapping:Asks", "sampling": {"max_new_tokens": 8}},
        middleware=[{"use": "wrapping:Loud"}],
        evaluate=None,
        steps=1,
    )
    assert module().seen.count("loud") >= done.metrics[0]["rollout/trajectories"]


@pytest.mark.parametrize(
    ("name", "what", "mend"),
    [
        ("NoLayer", "has the layer 'engine'", "agent, generator, rollout"),
        ("NoWrap", "has no method wrap(inner)", "GeneratorMiddleware"),
        ("Halved", "which has no start, grant, drain, state, restore, close", "miles_core.RolloutMiddleware"),
        ("Leaves", "failed to wrap: SystemExit: 0 (", "repair"),
    ],
)
def test_middleware_that_cannot_work_is_named_before_there_is_a_run_folder(lab, name, what, mend):
    with pytest.raises(PluginError) as caught:
        go(lab, middleware=[{"use": f"wrapping:{name}"}])
    text = str(caught.value)
    assert f"middleware 'wrapping:{name}' " in text and what in text and mend in text
    assert caught.value.problems[0].where == f"wrapping:{name} (wrapping:{name})"
    assert not lab.runs.exists()


def test_middleware_of_an_agent_that_is_not_there_is_refused(lab):
    with pytest.raises(RequestError, match=r"'wrapping:Loud' wraps the agent, and phase 'main' has no agent") as caught:
        go(lab, middleware=[{"use": "wrapping:Loud"}])
    assert "add `agent:`" in str(caught.value)


def test_the_core_s_own_middleware_in_a_run(lab):
    done = go(lab, middleware=[{"use": "trace"}, {"use": "limit", "concurrent": 1}])
    lines = [json.loads(line) for line in (done.folder.path / "trace.jsonl").read_text().splitlines()][1:]
    evaluated = [line for line in lines if line["purpose"] == "evaluation/held-out"]
    assert len(evaluated) == 2 * 8 and len(lines) - len(evaluated) >= 2 * 3 * 4
    assert all(line["tokens"] > 0 and line["status"] in ("completed", "truncated") for line in lines)


def test_the_plan_names_them_and_a_bad_option_is_a_fault(lab):
    plan, _ = load_plan(lab.recipe(middleware=[{"use": "limit", "concurrent": 4}, {"use": "trace"}]))
    assert [ref.name for ref in plan.phases[0].middleware] == ["limit", "trace"]
    with pytest.raises(MilesError, match=r"middleware\[0\]\.concurrent"):
        load_plan(lab.recipe(middleware=[{"use": "limit", "concurrent": 0}]))
