"""Chat templates against transformers, and the plain text of models without one."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from miles_plugin_huggingface.model import HuggingFaceModel
from miles_plugin_huggingface.options import HuggingFaceOptions
from tokenizers import AddedToken, Tokenizer, pre_tokenizers, processors
from tokenizers.decoders import ByteLevel
from tokenizers.models import BPE

from miles_core import BuildContext, RequestError

CHATML = (
    "{%- if tools %}{{ tools | tojson }}{% endif %}\n"
    "{%- for message in messages %}\n"
    "    {%- if message.role not in ['system', 'user', 'assistant', 'tool'] %}\n"
    "        {{- raise_exception('no such role: ' + message.role) }}\n"
    "    {%- endif %}\n"
    "    {{- bos_token + message.role + '\\n' }}\n"
    "    {%- if message.role == 'assistant' %}\n"
    "        {%- generation %}{{ message.content + eos_token }}{% endgeneration %}{{ '\\n' }}\n"
    "    {%- else %}\n"
    "        {{- message.content | trim + eos_token + '\\n' }}\n"
    "    {%- endif %}\n"
    "    {%- if loop.index > 20 %}{% break %}{% endif %}\n"
    "{%- endfor %}\n"
    "{%- if add_generation_prompt %}{{ bos_token + 'assistant\\n' }}{% endif %}"
)
FORGETFUL = "{% for m in messages %}{{ m.content if loop.last else '' }}{% endfor %}{{ 'A:' if add_generation_prompt }}"

CONTENT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20).filter(lambda text: "<" not in text)
MESSAGES = st.lists(
    st.fixed_dictionaries({"role": st.sampled_from(["system", "user", "assistant", "tool"]), "content": CONTENT}),
    min_size=1,
    max_size=5,
)


def write_tokenizer(folder: Path, template: str | None, *, in_config: bool = False, bos: bool = False) -> None:
    """A byte-level tokenizer without merges, with two marks, into a folder that transformers reads."""
    alphabet = {character: id for id, character in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(BPE(alphabet, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = ByteLevel()
    tokenizer.add_special_tokens([AddedToken("<|start|>", special=True), AddedToken("<|end|>", special=True)])
    if bos:
        tokenizer.post_processor = processors.TemplateProcessing(
            single="<|start|> $A", special_tokens=[("<|start|>", 256)]
        )
    tokenizer.save(str(folder / "tokenizer.json"))
    config: dict[str, Any] = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<|start|>",
        "eos_token": {"__type": "AddedToken", "content": "<|end|>", "special": True, "lstrip": False, "rstrip": False,
                      "normalized": False, "single_word": False},
    }  # fmt: skip
    if template is not None and in_config:
        config["chat_template"] = template
    elif template is not None:
        (folder / "chat_template.jinja").write_text(template)
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": 257}))


def renderer(folder: Path) -> Any:
    return HuggingFaceModel(HuggingFaceOptions(path=str(folder)), BuildContext(seed=0, name="model")).renderer()


COPIES = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])


@pytest.mark.parametrize("in_config", [False, True])
def test_a_template_renders_as_in_transformers(in_config: bool, folder: Path) -> None:
    transformers = pytest.importorskip("transformers")
    write_tokenizer(folder, CHATML, in_config=in_config)
    ours, theirs = renderer(folder), transformers.AutoTokenizer.from_pretrained(folder)

    @COPIES
    @given(messages=MESSAGES, generation=st.booleans())
    def check(messages: list[dict[str, str]], generation: bool) -> None:
        expected = theirs.apply_chat_template(messages, add_generation_prompt=generation)["input_ids"]
        assert ours.render(messages, generation=generation).tolist() == expected

    check()


def test_a_bridge_gives_what_the_template_gives_of_the_whole(folder: Path) -> None:
    write_tokenizer(folder, CHATML)
    ours = renderer(folder)

    @COPIES
    @given(messages=MESSAGES, answer=CONTENT, more=MESSAGES)
    def check(messages: list[dict[str, str]], answer: str, more: list[dict[str, str]]) -> None:
        expected = ours.render([*messages, {"role": "assistant", "content": answer}, *more]).tolist()
        prompt = ours.render(messages)
        for sampled in ([*ours.encode(answer), 257], [*ours.encode(answer)]):  # ended by itself, cut off
            turn = np.array([*prompt, *sampled], dtype=np.int32)
            assert [*turn, *ours.bridge(turn, more)] == expected
            parsed = ours.parse(np.array(sampled, dtype=np.int32))
            assert parsed.message == {"role": "assistant", "content": answer}
            assert parsed.complete is (sampled[-1:] == [257])

    check()


def test_a_template_that_rewrites_history_has_no_bridge(folder: Path) -> None:
    write_tokenizer(folder, FORGETFUL)
    with pytest.raises(ValueError, match="not append-only"):
        renderer(folder).bridge(np.array([1, 257], dtype=np.int32), [{"role": "user", "content": "x"}])


def test_the_templates_own_refusal_is_passed_on(folder: Path) -> None:
    write_tokenizer(folder, CHATML)
    with pytest.raises(ValueError, match="no such role: oracle"):
        renderer(folder).render([{"role": "oracle", "content": "x"}])


def test_a_template_cannot_leave_the_sandbox(folder: Path) -> None:
    write_tokenizer(folder, "{{ messages.__class__.__mro__ }}")
    with pytest.raises(ValueError, match="unsafe"):
        renderer(folder).render([{"role": "user", "content": "x"}])


def test_a_template_that_does_not_compile_is_named(folder: Path) -> None:
    write_tokenizer(folder, "{% for %}")
    with pytest.raises(RequestError, match="does not compile") as caught:
        renderer(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize("bos", [False, True])
def test_without_a_template_contents_are_lines(bos: bool, folder: Path) -> None:
    write_tokenizer(folder, None, bos=bos)
    ours = renderer(folder)
    start = [256] if bos else []
    prompt = ours.render([{"role": "system", "content": "a"}, {"role": "user", "content": "b"}])
    assert prompt.tolist() == [*start, *ours.encode("a\nb\n")]
    turn = np.array([*prompt, *ours.encode("c"), 257], dtype=np.int32)
    assert ours.bridge(turn, [{"role": "user", "content": "d"}]).tolist() == ours.encode("\nd\n").tolist()
    assert ours.parse(np.array([*ours.encode("c"), 257], dtype=np.int32)).message["content"] == "c"
    assert ours.decode(turn).endswith("c<|end|>")
    with pytest.raises(ValueError, match="plain text only"):
        ours.render([{"role": "user", "content": [{"type": "text", "text": "x"}]}])


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user"},
        {"role": "user", "content": None},
        {"role": "user", "content": [{"type": "image", "image": "x"}]},
    ],
)
def test_what_a_template_would_lose_is_refused(message: dict[str, Any], folder: Path) -> None:
    """jinja prints an unknown name as nothing, and a list as Python writes it."""
    write_tokenizer(folder, "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}")
    with pytest.raises(ValueError, match=r"no content|reads text only"):
        renderer(folder).render([message])
