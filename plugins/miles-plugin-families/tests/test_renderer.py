"""What every family's renderer keeps, and what particular ones do."""

from __future__ import annotations

import json

import numpy as np
import pytest
from family_renderers import build, renderer_of
from miles_plugin_families.renderer import FamilyRenderer

from miles_core import RequestError

USER = {"role": "user", "content": "2+2="}
MORE = {"role": "user", "content": "3+3="}
TOOL = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Adds.",
        "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
    },
}
CALLS = [
    {"id": f"functions.add:{n}", "type": "function", "function": {"name": "add", "arguments": json.dumps({"a": n})}}
    for n in (0, 1)
]


def ended(renderer: FamilyRenderer, ids: list[int]) -> np.ndarray:
    return np.array([*ids, renderer.stop_tokens[0]], np.int32)


def test_a_bridge_looks_at_the_last_token_alone(renderer):
    """Whatever was sampled, broken marks and open thoughts included, what follows is the same."""
    prompt = renderer.render([USER])
    special = sorted(set(prompt.tolist()) - set(renderer.stop_tokens))
    bridges = [
        renderer.bridge(np.concatenate([prompt, ended(renderer, said)]), [MORE]).tolist()
        for said in ([], renderer.encode("4").tolist(), special, renderer.encode("<think>no end").tolist())
    ]
    assert all(bridge == bridges[0] for bridge in bridges)


def test_a_special_token_in_a_text_stays_text(renderer):
    stop = renderer.decode(np.array(renderer.stop_tokens[:1]))
    plain = renderer.render([{"role": "user", "content": "x"}])
    spelt = renderer.render([{"role": "user", "content": f"x{stop}x"}])
    assert np.isin(spelt, renderer.stop_tokens).sum() == np.isin(plain, renderer.stop_tokens).sum()
    assert f"x{stop}x" in renderer.decode(spelt)


def test_any_tokens_say_something(renderer):
    rng = np.random.default_rng(0)
    pool = np.array([*renderer.render([USER], generation=True).tolist(), *renderer.stop_tokens, 5, 6, 7])
    for _ in range(50):
        parsed = renderer.parse(rng.choice(pool, rng.integers(0, 12)).astype(np.int32), tools=[TOOL])
        assert parsed.message["role"] == "assistant"
        assert isinstance(parsed.message["content"], str)


def test_an_edited_reply_among_the_messages_is_written_as_render_writes_it(renderer):
    prompt = renderer.render([USER])
    turn = renderer.render([USER, {"role": "assistant", "content": "4"}], generation=False)
    following = [MORE, {"role": "assistant", "content": "6"}, {"role": "user", "content": "5+5="}]
    whole = renderer.render([USER, {"role": "assistant", "content": "4"}, *following])
    assert np.array_equal(whole[: len(prompt)], prompt)
    assert np.array_equal(np.concatenate([turn, renderer.bridge(turn, following)]), whole)


def test_what_cannot_be_expressed_is_refused(renderer):
    for wrong in (
        {"role": "critic", "content": "x"},
        {"role": "user"},
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "user", "content": "\ufdd0"},
    ):
        with pytest.raises(ValueError):
            renderer.render([wrong])


@pytest.mark.parametrize("name", ["qwen3", "qwen3.5", "kimi-k2", "deepseek-v4", "minimax-m2", "nemotron-3", "glm-5"])
def test_parallel_calls_read_back(name):
    renderer = renderer_of(name)
    said = {"role": "assistant", "content": "", "tool_calls": CALLS}
    prompt = renderer.render([USER], tools=[TOOL])
    whole = renderer.render([USER, said], tools=[TOOL], generation=False)
    assert np.array_equal(whole[: len(prompt)], prompt)
    calls = renderer.parse(whole[len(prompt) :], tools=[TOOL]).message["tool_calls"]
    assert [(c["function"]["name"], json.loads(c["function"]["arguments"])) for c in calls] == [
        ("add", {"a": 0}),
        ("add", {"a": 1}),
    ]


@pytest.mark.parametrize("text", ["", "Let me see."])
def test_a_line_end_stands_before_every_call_of_glm(text):
    renderer = renderer_of("glm-4.5")
    said = {"role": "assistant", "content": text, "tool_calls": CALLS}
    written = renderer.decode(renderer.render([USER, said], tools=[TOOL], generation=False))
    assert written.count("\n<tool_call>add\n") == 2


def test_gpt_oss_says_itself_in_which_channel_it_speaks():
    renderer = renderer_of("gpt-oss")
    prompt = renderer.render([USER], tools=[TOOL])
    assert renderer.decode(prompt).endswith("<|end|><|start|>assistant")
    encode = renderer._tokenizer.encode
    in_channel = '<|channel|>commentary to=functions.add <|constrain|>json<|message|>{"a": 1}<|call|>'
    for call in (in_channel, ' to=functions.add<|channel|>commentary json<|message|>{"a": 1}<|call|>'):
        thought = "<|channel|>analysis<|message|>so<|end|><|start|>assistant"
        for said, reasoning in ((call, None), (thought + call, "so")):
            parsed = renderer.parse(np.array(encode(said), np.int32), tools=[TOOL])
            assert parsed.complete and parsed.message.get("reasoning_content") == reasoning
            (made,) = parsed.message["tool_calls"]
            assert (made["function"]["name"], json.loads(made["function"]["arguments"])) == ("add", {"a": 1})
    final = encode("<|channel|>final<|message|>4<|return|>")
    assert renderer.parse(np.array(final, np.int32)).message["content"] == "4"
    answer = {"role": "tool", "tool_call_id": "x", "content": 'a "b"'}
    bridge = renderer.bridge(np.array([*prompt, *encode(call)], np.int32), [answer], tools=[TOOL])
    header = "<|start|>functions.add to=assistant<|channel|>commentary<|message|>"
    assert renderer.decode(bridge) == header + json.dumps('a "b"') + "<|end|><|start|>assistant"


def test_a_call_that_was_cut_stays_text():
    renderer = renderer_of("qwen3")
    said = renderer._tokenizer.encode('so: <tool_call>\n{"name": "add", "arguments": {"a"')
    parsed = renderer.parse(np.array(said, np.int32), tools=[TOOL])
    assert "tool_calls" not in parsed.message
    assert not parsed.complete
    assert '"arguments": {"a"' in parsed.message["content"]


def test_python_words_where_the_schema_wants_none():
    renderer = renderer_of("qwen3.5")
    schema = {"type": "object", "properties": {"exact": {"type": "boolean"}, "text": {"type": "string"}}}
    tool = {"type": "function", "function": {"name": "find", "parameters": schema}}
    text = (
        "<tool_call>\n<function=find>\n<parameter=text>\nTrue\n</parameter>\n"
        "<parameter=exact>\n%s\n</parameter>\n</function>\n</tool_call>"
    )
    for word, good in (("True", True), ("true", True), ("maybe", False)):
        said = ended(renderer, renderer._tokenizer.encode(text % word))
        message = renderer.parse(said, tools=[tool]).message
        if good:
            arguments = json.loads(message["tool_calls"][0]["function"]["arguments"])
            assert arguments == {"text": "True", "exact": True}
        else:
            assert "tool_calls" not in message
            assert "maybe" in message["content"]


def test_reasoning_of_earlier_turns_is_kept_or_the_session_is_refused():
    said = {"role": "assistant", "content": "4", "reasoning_content": "why"}
    kept = renderer_of("qwen3", practice=16)
    assert "why" in kept.decode(kept.render([USER, said, MORE]))
    strict = renderer_of("qwen3", practice=16, history="template")
    turn = np.concatenate([strict.render([USER]), ended(strict, strict.encode("4").tolist())])
    with pytest.raises(ValueError, match="history: template"):
        strict.bridge(turn, [MORE])
    strict.bridge(turn, [{"role": "tool", "content": "5", "tool_call_id": "a"}])


def test_kimi_writes_ids_of_its_own_form():
    renderer = renderer_of("kimi-k2")
    call = {**CALLS[0], "id": "call_abc"}
    answer = {"role": "tool", "content": "5", "tool_call_id": "call_abc"}
    shown = renderer.decode(
        renderer.render([USER, {"role": "assistant", "content": "", "tool_calls": [call]}, answer], tools=[TOOL])
    )
    assert "functions.add:0" in shown
    assert "call_abc" not in shown


def test_inkling_names_the_tool_that_answers():
    renderer = renderer_of("inkling")
    said = {"role": "assistant", "content": "", "tool_calls": CALLS[:1]}
    turn = renderer.render([USER, said], tools=[TOOL], generation=False)
    bridge = renderer.decode(
        renderer.bridge(turn, [{"role": "tool", "content": "5", "tool_call_id": "other"}], tools=[TOOL])
    )
    assert bridge.startswith("<|message_tool|>add")
    with pytest.raises(ValueError, match="names the tool"):
        renderer.bridge(ended(renderer, [5]), [{"role": "tool", "content": "5", "tool_call_id": "other"}], tools=[TOOL])


def test_a_format_without_tool_definitions_refuses_tools():
    renderer = renderer_of("deepseek-v3")
    with pytest.raises(ValueError, match="which tools there are"):
        renderer.render([USER], tools=[TOOL])
    with pytest.raises(ValueError, match="which tools there are"):
        renderer.bridge(ended(renderer, [5]), [MORE], tools=[TOOL])


def test_a_turn_of_glm_is_closed_by_who_speaks_next():
    renderer = renderer_of("glm-5")
    user, *_ = renderer.stop_tokens
    turn = np.array([*renderer.render([USER]).tolist(), *renderer.encode("4").tolist()], np.int32)
    cut = renderer.bridge(turn, [MORE]).tolist()
    assert cut[0] == user
    assert renderer.bridge(np.append(turn, user).astype(np.int32), [MORE]).tolist() == cut[1:]


def test_a_model_of_another_family_is_refused_with_the_families(tmp_path):
    from miles_core.testing import tiny_model

    path = tiny_model(tmp_path / "model").path
    with pytest.raises(RequestError) as refusal:
        build("qwen3", path=str(path)).materialise()
    assert "use: llama-3" in str(refusal.value)
    config = json.loads((path / "config.json").read_text()) | {"model_type": "mistral"}
    (path / "config.json").write_text(json.dumps(config))
    with pytest.raises(RequestError) as refusal:
        build("qwen3", path=str(path)).materialise()
    assert "nemotron-3.5" in str(refusal.value)
    assert "registered by a plugin" in str(refusal.value)


def test_a_tokenizer_without_the_format_s_tokens_is_refused(tmp_path):
    from miles_core.testing import tiny_model

    with pytest.raises(RequestError, match="does not fit"):
        build("llama-3", path=str(tiny_model(tmp_path / "model").path)).materialise()


def test_without_a_checkpoint_it_says_what_to_give():
    with pytest.raises(RequestError, match="needs a checkpoint") as refusal:
        build("qwen3", thinking=True).materialise()
    assert "practice" in str(refusal.value)
