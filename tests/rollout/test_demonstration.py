"""Demonstrations become the tokens that a session would have, turn by turn."""

from __future__ import annotations

import numpy as np
import pytest

from miles_core import RequestError
from miles_core.contracts.options import NoOptions
from miles_core.rollout.demonstration import Demonstration
from miles_core.testing import CharRenderer, CharToolRenderer, make_attempt, make_generate_context, make_task

TOOLS = [{"type": "function", "function": {"name": "add"}}]


def calls(*numbers):
    made = [
        {"id": f"c{n}", "type": "function", "function": {"name": "add", "arguments": f'{{"a": {n}}}'}} for n in numbers
    ]
    return {"role": "assistant", "content": "", "tool_calls": made}


def result(text, id):
    return {"role": "tool", "tool_call_id": id, "content": text}


async def made(task, renderer=None):
    context = make_generate_context(renderer=renderer or CharToolRenderer())
    trajectory = await Demonstration(NoOptions(), None).generate(make_attempt(task), context)
    (sequence,) = trajectory.sequences
    return trajectory, sequence


def task_of(*shown):
    return make_task("q", demonstration=list(shown), tools=TOOLS)


async def test_an_answer():
    trajectory, sequence = await made(make_task("2+2=", answer="4"), CharRenderer())
    assert CharRenderer().decode(sequence.tokens) == "2+2=\n4\0"
    assert CharRenderer().decode(sequence.tokens[sequence.sampled]) == "4\0"
    assert trajectory.text == "4"


async def test_a_conversation_with_calls():
    shown = [
        calls(1, 2),
        result("2", "c1"),
        result("3", "c2"),
        calls(5),
        result("6", "c5"),
        {"role": "assistant", "content": "6"},
    ]
    trajectory, sequence = await made(task_of(*shown))
    renderer = CharToolRenderer()
    assert renderer.decode(sequence.tokens[sequence.sampled]) == (
        '<call>add {"a": 1}</call><call>add {"a": 2}</call>\0<call>add {"a": 5}</call>\0' + "6\0"
    )
    whole = renderer.render([{"role": "user", "content": "q"}, *shown], tools=TOOLS, generation=False)
    assert np.array_equal(sequence.tokens, whole[: len(sequence.tokens)])
    assert trajectory.text == "6" and sequence.logprobs is None


@pytest.mark.parametrize(
    ("shown", "why"),
    [
        ("text", "is no list of messages"),
        ([{"role": "user", "content": "x"}], "does not begin and end with a message of the assistant"),
        ([calls(1), result("2", "c1")], "does not begin and end"),
        ([calls(1), calls(2)], "two messages of the assistant in a row"),
        ([calls(1), {"role": "robot", "content": ""}, {"role": "assistant", "content": "6"}], "cannot be rendered"),
    ],
)
async def test_what_is_no_demonstration_is_refused(shown, why):
    with pytest.raises(RequestError, match=why):
        await made(make_task("q", demonstration=shown, tools=TOOLS))


async def test_a_format_without_tools_refuses_them():
    with pytest.raises(RequestError, match="no tools"):
        await made(task_of({"role": "assistant", "content": "6"}), CharRenderer())
