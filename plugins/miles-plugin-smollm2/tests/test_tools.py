"""The tool format: what a call is, what is none, and conversations with calls that only grow."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from miles_plugin_smollm2.options import DEFAULT_SYSTEM, SmolLM2Options
from miles_plugin_smollm2.renderer import SmolLM2Renderer
from miles_plugin_smollm2.tool_format import call_text, read_reply

TOOL = {
    "type": "function",
    "function": {
        "name": "calculator",
        "description": "Compute.",
        "parameters": {"type": "object", "properties": {"expression": {"type": "string"}}},
    },
}
TEXT = st.text(st.characters(exclude_categories=["Cs", "Cc"], max_codepoint=0x3FFFF), max_size=20)
PLAIN = TEXT.filter(lambda text: "<" not in text)
VALUE = st.recursive(st.none() | st.booleans() | st.integers() | PLAIN, lambda inner: st.lists(inner, max_size=3))
CALL = st.builds(
    lambda name, arguments: {
        "type": "function",
        "function": {"name": name, "arguments": json.dumps(arguments, ensure_ascii=False)},
    },
    PLAIN.filter(bool),
    st.dictionaries(PLAIN, VALUE, max_size=3),
)
USER = st.builds(lambda text: {"role": "user", "content": text}, PLAIN)
RESULT = st.builds(lambda text: {"role": "tool", "content": text, "tool_call_id": "c"}, PLAIN)
REPLY = st.builds(
    lambda text, calls: {"role": "assistant", "content": text, **({"tool_calls": calls} if calls else {})},
    PLAIN.filter(lambda text: not text or bool(text.strip())),
    st.lists(CALL, max_size=3),
)


@pytest.fixture(scope="module")
def renderer(model_folder: Path) -> SmolLM2Renderer:
    return SmolLM2Renderer(model_folder, DEFAULT_SYSTEM, tools=True)


def conversation(renderer: SmolLM2Renderer, *messages: Any, **options: Any) -> str:
    return renderer.decode(renderer.render(messages, tools=[TOOL], **options))


def test_the_format_as_text(renderer: SmolLM2Renderer) -> None:
    call = {"id": "c", "type": "function", "function": {"name": "calculator", "arguments": '{"expression": "2+3"}'}}
    assert conversation(
        renderer,
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "2+3?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "content": "5", "tool_call_id": "c"},
    ) == (
        "<|im_start|>system\nBe brief.\n\n# Tools\n"
        '{"name": "calculator", "description": "Compute.", "parameters": '
        '{"type": "object", "properties": {"expression": {"type": "string"}}}}\n'
        'To call a tool, write <tool_call>{"name": ..., "arguments": {...}}</tool_call><|im_end|>\n'
        "<|im_start|>user\n2+3?<|im_end|>\n<|im_start|>assistant\n"
        '<tool_call>{"name": "calculator", "arguments": {"expression": "2+3"}}</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>5</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_the_default_system_message_stands_before_the_tools(renderer: SmolLM2Renderer) -> None:
    assert conversation(renderer, {"role": "user", "content": "x"}).startswith(
        f"<|im_start|>system\n{DEFAULT_SYSTEM}\n\n# Tools\n"
    )


def test_without_the_option_tools_are_refused(model_folder: Path) -> None:
    plain = SmolLM2Renderer(model_folder, DEFAULT_SYSTEM)
    question = [{"role": "user", "content": "x"}]
    with pytest.raises(ValueError, match="tools: json"):
        plain.render(question, tools=[TOOL])
    with pytest.raises(ValueError, match="tools: json"):
        plain.bridge(plain.render(question), question, tools=[TOOL])
    assert SmolLM2Options().tools is None and "tools" in SmolLM2Options(tools="json").card()


@pytest.mark.parametrize("tool", [{"type": "web_search"}, {"type": "function"}, {"type": "function", "function": {}}])
def test_other_tools_are_refused(tool: Any, renderer: SmolLM2Renderer) -> None:
    with pytest.raises(ValueError, match="of the type `function` only"):
        renderer.render([{"role": "user", "content": "x"}], tools=[tool])


@settings(max_examples=100, deadline=None)
@given(question=USER, reply=REPLY, more=st.lists(USER | RESULT | REPLY, min_size=1, max_size=4))
def test_a_sampled_reply_with_its_bridge_is_the_longer_conversation(
    question: Any, reply: Any, more: Any, renderer: SmolLM2Renderer
) -> None:
    prompt = renderer.render([question], tools=[TOOL])
    answered = renderer.render([question, reply], tools=[TOOL], generation=False)
    sampled = answered[len(prompt) : -1]  # what follows <|im_end|> is the bridge's
    assert answered[: len(prompt)].tolist() == prompt.tolist() and int(sampled[-1]) in renderer.stop_tokens
    turn = np.concatenate([prompt, sampled])
    whole = renderer.render([question, reply, *more], tools=[TOOL])
    assert [*turn.tolist(), *renderer.bridge(turn, more, tools=[TOOL]).tolist()] == whole.tolist()


@settings(max_examples=150, deadline=None)
@given(reply=REPLY)
def test_calls_are_read_as_they_were_written(reply: Any, renderer: SmolLM2Renderer) -> None:
    text = reply["content"] + "".join(call_text(call) for call in reply.get("tool_calls", ()))
    parsed = renderer.parse(np.append(renderer.encode(text), np.int32(renderer.stop_tokens[0])), tools=[TOOL])
    assert parsed.message == reply and parsed.complete


@settings(max_examples=300, deadline=None)
@given(pieces=st.lists(st.sampled_from(["<tool_call>", "</tool_call>", "{", "}", '"name": "f"', ",", " "]) | TEXT))
def test_any_text_says_something(pieces: list[str]) -> None:
    text = "".join(pieces)
    message = read_reply(text)
    if "tool_calls" not in message:
        assert message["content"] == text
    else:
        for call in message["tool_calls"]:
            assert isinstance(json.loads(call["function"]["arguments"]), dict)


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>{no json}</tool_call>",
        '<tool_call>{"name": "f", "arguments": {"x": 1}}',
        '<tool_call>{"name": "f", "arguments": "x"}</tool_call>',
        '<tool_call>{"name": "", "arguments": {}}</tool_call>',
        '<tool_call>{"name": "f"}</tool_call>',
        '<tool_call>["f"]</tool_call>',
        '<tool_call>{"name": "f", "arguments": {"x": NaN}}</tool_call>',
        f"<tool_call>{'[' * 100_000}</tool_call>",
    ],
)
def test_a_broken_call_is_text(text: str) -> None:
    assert read_reply(text) == {"role": "assistant", "content": text}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        ('{"name": "f", "arguments": {"x":1 ,  "y" : "é"}}', '{"x":1 ,  "y" : "é"}'),
        ('{"arguments": {"x":1}, "name": "f"}', '{"x": 1}'),
        ('{"name": "f", "arguments": {}, "id": 3}', "{}"),
        ('{"name": "f", "arguments": {"a": 1}, "arguments": {"b":2}}', '{"b": 2}'),
    ],
)
def test_arguments_are_spelled_as_the_model_did_where_that_can_be_told(written: str, read: str) -> None:
    message = read_reply(f"one <tool_call>{written}</tool_call>\n")
    assert message["content"] == "one "
    assert message["tool_calls"] == [{"type": "function", "function": {"name": "f", "arguments": read}}]


def test_without_tools_a_call_is_text(renderer: SmolLM2Renderer) -> None:
    text = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    assert renderer.parse(renderer.encode(text)).message == {"role": "assistant", "content": text}
