"""The `tool-loop` generator: trajectories are exactly what the engine sampled, whatever the model calls."""

from __future__ import annotations

import json
import random
import sys
from dataclasses import replace

import pytest

from miles_core import Finish, RealClock, RequestError, Status
from miles_core.recipe.plan import load_plan
from miles_core.rollout.tool_loop import ToolLoop, ToolLoopOptions
from miles_core.testing import (
    CharRenderer,
    CharToolRenderer,
    ScriptedEngine,
    make_attempt,
    make_generate_context,
    make_task,
)
from miles_core.types.sampling import Sampling

ADD = "miles_core.testing.fakes.adding_tool:add"


def call(a, b, name="add"):
    return f'<call>{name} {{"a": {a}, "b": {b}}}</call>'


async def made(answers, *, renderer=None, longest=None, new=200, **options):
    engine = ScriptedEngine(answers)
    context = make_generate_context(engine, renderer=renderer or CharToolRenderer(), clock=RealClock())
    generator = ToolLoop(ToolLoopOptions(**{"tools": (ADD,), **options}))
    attempt = make_attempt(make_task(), sampling=Sampling(max_new_tokens=new, stop_tokens=(0,)))
    return await generator.generate(attempt, replace(context, longest=longest)), engine


def check(trajectory, engine):
    """Token for token what the engine logged, in one sequence."""
    (sequence,) = trajectory.sequences
    last = engine.log[-1]
    assert sequence.tokens.tolist() == [*last.prompt, *last.tokens]
    sampled = [False] * len(sequence)
    for exchange in engine.log:
        start = len(exchange.prompt)
        assert sequence.tokens[:start].tolist() == list(exchange.prompt)
        sampled[start : start + len(exchange.tokens)] = [True] * len(exchange.tokens)
        assert sequence.logprobs[start : start + len(exchange.tokens)].tolist() == list(exchange.logprobs)
    assert sequence.sampled.tolist() == sampled


async def test_a_call_its_result_and_the_answer():
    trajectory, engine = await made([f"hm {call(2, 3)}", "it is 5"])
    check(trajectory, engine)
    assert (trajectory.status, trajectory.text) == (Status.COMPLETED, "it is 5")
    assert trajectory.metadata["tools"] == {"turns": 2, "calls": 1, "failures": 0, "ended": "answer"}
    text = CharRenderer().decode(trajectory.sequences[0].tokens)
    assert text.endswith(f"hm {call(2, 3)}\0\n5\nit is 5\0")
    assert json.loads(text.splitlines()[0])[0]["function"]["name"] == "add"


async def test_parallel_calls_stand_in_their_order():
    trajectory, engine = await made([call(1, 1) + call(2, 2) + call(3, 3, "mul"), "done"])
    check(trajectory, engine)
    text = CharRenderer().decode(trajectory.sequences[0].tokens)
    assert "\n2\n4\nerror: there is no tool 'mul'; there is: add\ndone" in text
    assert trajectory.metadata["tools"] == {"turns": 2, "calls": 3, "failures": 1, "ended": "answer"}


@pytest.mark.parametrize(
    ("answers", "options", "ended", "status"),
    [
        ([call(1, 2)] * 2, {"turns": 2}, "turns", Status.TRUNCATED),
        ([call(1, 2), "x" * 50], {"new": 30}, "tokens", Status.TRUNCATED),
        (['<call>add {"a": }</call>'], {}, "answer", Status.COMPLETED),
    ],
)
async def test_what_ends_it(answers, options, ended, status):
    trajectory, engine = await made(answers, **options)
    assert (trajectory.metadata["tools"]["ended"], trajectory.status) == (ended, status)
    check(trajectory, engine)


async def test_a_conversation_ends_where_the_context_does():
    answers = [call(1, 2), "fine"]
    _, engine = await made(answers)
    room = len(engine.log[1].prompt)
    for more, ended in ((0, "context"), (1, "tokens"), (5, "answer")):
        trajectory, engine = await made(answers, longest=room + more)
        assert trajectory.metadata["tools"]["ended"] == ended
        check(trajectory, engine)


async def test_a_long_result_is_cut():
    trajectory, engine = await made([call(10**30, 0), "so"], characters=4)
    check(trajectory, engine)
    assert "\n1000... (27 more characters)\nso" in CharRenderer().decode(trajectory.sequences[0].tokens)


async def test_an_aborted_turn_is_not_kept():
    engine = ScriptedEngine([call(1, 2), "x"])
    context = make_generate_context(engine, renderer=CharToolRenderer(), clock=RealClock())
    inner = engine.generate

    async def generate(request):
        result = await inner(request)
        return replace(result, finish=Finish.ABORT) if len(engine.log) == 2 else result

    engine.generate = generate
    trajectory = await ToolLoop(ToolLoopOptions(tools=(ADD,))).generate(
        make_attempt(sampling=Sampling(max_new_tokens=100, stop_tokens=(0,))), context
    )
    assert trajectory.status is Status.ABORTED
    assert trajectory.sequences[0].tokens.tolist() == [*engine.log[0].prompt, *engine.log[0].tokens]


async def test_a_format_without_tools_ends_the_run():
    with pytest.raises(RequestError, match="cannot express this: this format has no tools"):
        await made(["x"], renderer=CharRenderer())


async def test_random_conversations_are_what_was_sampled():
    rng = random.Random(7)
    pieces = [
        call(1, 2),
        call(5, 6, "sub"),
        '<call>add {"a": "x"}</call>',
        "<call>add {broken}</call>",
        "ab\n",
        "<",
        " ",
    ]
    for _ in range(60):
        answers = ["".join(rng.choices(pieces, k=rng.randint(0, 4))) for _ in range(8)]
        trajectory, engine = await made(answers, turns=rng.randint(1, 6), new=rng.choice([20, 60, 300]))
        check(trajectory, engine)


def test_a_recipe_finds_functions_beside_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "my_tool_functions.py").write_text("def double(x: int) -> int:\n    return 2 * x\n")
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "prompt": "x", "answer": "y"}\n')
    recipe = (
        "miles: 1\nplugins: [toy]\nmodel: {use: toy}\nengine: {use: toy}\ndata: {use: file, path: tasks.jsonl}\n"
        "schedule: {use: sync, groups_per_step: 1, group_size: 2}\nrewards: [{use: match}]\nsteps: 1\n"
        "generator: {use: tool-loop, tools: ['my_tool_functions:double'], sampling: {max_new_tokens: 9}}\n"
    )
    (tmp_path / "r.yaml").write_text(recipe)
    plan, _ = load_plan(tmp_path / "r.yaml")
    assert any("my_tool_functions" in locked.distribution + locked.name for locked in plan.plugins)
    assert plan.recipe["code"] == [str(tmp_path)]
    (tmp_path / "bad.yaml").write_text(recipe.replace(":double", ":duble"))
    with pytest.raises(RequestError, match="there is no 'duble'"):
        load_plan(tmp_path / "bad.yaml")
    sys.modules.pop("my_tool_functions", None)
