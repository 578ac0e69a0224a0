"""The normal form of messages, and which replayed messages each matcher takes for the stored one."""

from __future__ import annotations

import json

import pytest

from miles_core.session.faults import SessionFault
from miles_core.session.matching import MATCHERS, difference
from miles_core.session.messages import normal, read_messages


def called(arguments, **more):
    call = {"id": "1", "type": "function", "function": {"name": "add", "arguments": arguments}, **more}
    return {"role": "assistant", "content": None, "tool_calls": [call]}


SAME = [
    ({"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "a"}]}),
    ({"role": "system", "content": "a"}, {"role": "developer", "content": "a"}),
    ({"role": "assistant", "content": ""}, {"role": "assistant", "content": None, "tool_calls": [], "refusal": None}),
    ({"role": "assistant", "content": []}, {"role": "assistant"}),
    (
        {"role": "assistant", "reasoning_content": "r"},
        {"role": "assistant", "reasoning": "r", "reasoning_content": "r"},
    ),
    (
        {"role": "assistant", "content": "a"},
        {"role": "assistant", "content": "a", "name": "me", "prompt_token_ids": [1]},
    ),
    (called("{}"), called("{}", index=0)),
]

TOOL_ARGUMENTS = [
    ('{"a": 1, "b": [2]}', '{"b":[2],"a":1}', True),
    ('{"a": 1}', '{"a": 1.0}', True),
    ('{"a": "\\u00e9"}', '{"a": "é"}', True),
    ("{}", "", True),
    ("{}", "null", True),
    ('{"a": 1}', '{"a": true}', False),
    ('{"a": 1}', '{"a": "1"}', False),
    ('{"a": 0.1}', '{"a": 0.1000000000000000001}', False),
    ('{"a": 1, "a": 1}', '{"a": 1}', False),
    ('{"a": NaN}', '{"a":NaN}', False),
    ('{"a": ', '{"a":', False),
]


@pytest.mark.parametrize(("stored", "replayed"), SAME)
def test_one_normal_form(stored, replayed):
    assert normal(stored) == normal(replayed)
    assert normal(normal(stored)) == normal(stored)
    assert MATCHERS["strict"]().matches(normal(stored), normal(replayed))


@pytest.mark.parametrize(
    "replayed",
    [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "a "},
        {"role": "assistant", "content": "a", "reasoning_content": "r"},
        {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": ""}]},
        {**called("{}"), "content": "a"},
    ],
)
def test_strict_tells_apart_what_a_template_can(replayed):
    stored = normal({"role": "assistant", "content": "a"})
    assert not MATCHERS["strict"]().matches(stored, normal(replayed))
    assert "differs" in difference(stored, normal(replayed))


@pytest.mark.parametrize(("stored", "replayed", "same"), TOOL_ARGUMENTS)
def test_tool_arguments_are_compared_as_typed_json(stored, replayed, same):
    pair = normal(called(stored)), normal(called(replayed))
    assert MATCHERS["tool-arguments"]().matches(*pair) is same
    assert not MATCHERS["strict"]().matches(*pair)
    assert MATCHERS["role-content"]().matches(*pair)


def test_tool_arguments_still_compares_the_rest():
    stored = normal(called('{"a": 1}'))
    other = json.loads(json.dumps(stored))
    other["tool_calls"][0]["function"]["name"] = "sub"
    assert not MATCHERS["tool-arguments"]().matches(stored, other)


@pytest.mark.parametrize(
    ("message", "named"),
    [
        ({"role": "user", "content": 3}, "`content`"),
        ({"role": "user", "content": ["a"]}, "`content`"),
        ({"role": "user", "content": "a", "name": 3}, "`name`"),
        ({"role": "assistant", "tool_calls": {}} | {"tool_calls": {"a": 1}}, "`tool_calls`"),
        (called(3), "arguments"),
        (called("{}") | {"tool_calls": [{"function": {"arguments": "{}"}}]}, "function"),
        (called("{}") | {"tool_calls": [{"id": [1], "function": {"name": "f", "arguments": "{}"}}]}, "`id`"),
        ({"role": "assistant", "reasoning": {"a": 1}}, "`reasoning_content`"),
        ({"role": ["user"], "content": "a"}, "role"),
        ("hi", "expected an object"),
    ],
)
def test_what_is_wrong_with_a_message_is_named(message, named):
    with pytest.raises(SessionFault, match="message 0") as fault:
        read_messages([message, {"role": "user", "content": "x"}])
    assert named in str(fault.value) and fault.value.status == 400


def test_a_tools_answer_needs_its_call():
    history = [{"role": "user", "content": "x"}, called("{}")]
    answer = {"role": "tool", "tool_call_id": "1", "content": "2"}
    assert len(read_messages([*history, answer])) == 3
    for wrong in ([history[0], answer], [*history, {**answer, "tool_call_id": "2"}]):
        with pytest.raises(SessionFault) as fault:
            read_messages(wrong)
        assert fault.value.code == "tool_result_without_call"
