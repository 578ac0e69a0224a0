"""gpt-oss as the template of its checkpoints writes it.

The library writes what OpenAI's own encoder does, which is not what the template does:

| | template | library |
|---|---|---|
| where a turn begins | `<|start|>assistant` | inside the analysis channel: the model must think |
| a call | `to=functions.NAME<|channel|>commentary json` | without `json` |
| a text beside a call | in the analysis channel | in the final channel |
| a tool's answer | as a JSON text | as it is |
| instructions without tools | end with an empty line | do not |

And it encodes texts by itself, so that a special token that a text spells would stay marked (see tokenizer.py). Here
messages are texts, which the family's tokenizer encodes. Reading is the library's.

Two things the template cannot decide. A turn that ends in the final channel keeps the `<|return|>` that was sampled,
where the template puts `<|end|>` when somebody speaks after it. Reasoning and text beside one call, which the template
refuses, are an analysis and a preamble in the commentary channel, as OpenAI describes them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from renderers.base import RenderedTokens
from renderers.gpt_oss import GptOssRenderer

from miles_plugin_families.tokenizer import FamilyTokenizer

FORCED = 3
"""Tokens that the library puts after the header of a turn: a channel, its name, and where its message begins."""

END = "<|end|>"


class GptOss(GptOssRenderer):
    """See the module's text."""

    def __init__(self, tokenizer: FamilyTokenizer, config: Any) -> None:
        super().__init__(tokenizer, config)
        self._enc = _Texts(self._enc, tokenizer)

    def render(
        self,
        messages: list[Any],
        *,
        tools: list[Any] | None = None,
        add_generation_prompt: bool = False,
    ) -> RenderedTokens:
        rendered = super().render(messages, tools=tools, add_generation_prompt=add_generation_prompt)
        return _opened(rendered) if add_generation_prompt else rendered

    def bridge_to_next_turn(
        self,
        previous_prompt_ids: list[int],
        previous_completion_ids: list[int],
        new_messages: list[Any],
        *,
        tools: list[Any] | None = None,
    ) -> RenderedTokens | None:
        bridged = super().bridge_to_next_turn(previous_prompt_ids, previous_completion_ids, new_messages, tools=tools)
        return None if bridged is None else _opened(bridged)

    def _response_prefix(self, token_ids: list[int], prompt_ids: list[int] | None) -> list[int]:
        """The header that the prompt ended with: a turn begins inside it."""
        if not prompt_ids or self._start not in prompt_ids or token_ids[:1] == [self._start]:
            return []
        return prompt_ids[len(prompt_ids) - 1 - prompt_ids[::-1].index(self._start) :]

    def _to_harmony_messages(self, msg: Any, *, preserve_thinking: bool = False) -> list[str]:
        role, content = msg["role"], msg["content"]
        if role == "assistant":
            return self._assistant(msg, content, preserve_thinking)
        if role == "tool":
            header = f"functions.{msg['name'].removeprefix('functions.')} to=assistant<|channel|>commentary"
            return [f"<|start|>{header}<|message|>{json.dumps(content, ensure_ascii=False)}{END}"]
        if role == "user":
            return [f"<|start|>user<|message|>{content}{END}"]
        return [f"<|start|>developer<|message|># Instructions\n\n{content}\n\n{END}"]

    def _assistant(self, msg: Mapping[str, Any], content: str, with_reasoning: bool) -> list[str]:
        """One turn: its last message ends with what a turn ends with."""
        reasoning = msg.get("reasoning_content", "") if with_reasoning else ""
        calls: Sequence[Any] = msg.get("tool_calls", ())
        if calls:
            said = [("analysis", reasoning), ("commentary" if reasoning else "analysis", content)]
            written = [_said(channel, text, END) for channel, text in said if text]
            return [*written, *(_call(call["function"]) for call in calls)]
        written = [_said("analysis", reasoning, END)] if reasoning else []
        return [*written, _said("final", content, "<|return|>")]


class _Texts:
    """In the place of OpenAI's encoder: messages are texts; what stands before a conversation is that encoder's."""

    def __init__(self, encoder: Any, tokenizer: FamilyTokenizer) -> None:
        self._encoder = encoder
        self._tokenizer = tokenizer

    def render(self, text: str) -> list[int]:
        return self._tokenizer.encode(text)

    def render_conversation(self, conversation: Any) -> list[int]:
        """The system message, and the developer's with instructions and tools."""
        *before, last = conversation.messages
        developer = last.content[0] if last.author.role == "developer" else None
        if developer is not None and not developer.instructions and not developer.tools:
            conversation, developer = type(conversation).from_messages(before), None
        text = self._encoder.decode(self._encoder.render_conversation(conversation))
        if developer is not None and not developer.tools:
            text = text.removesuffix(END) + "\n\n" + END
        return self._tokenizer.encode(text)


def _said(channel: str, text: str, end: str) -> str:
    return f"<|start|>assistant<|channel|>{channel}<|message|>{text}{end}"


def _call(function: Mapping[str, Any]) -> str:
    arguments = json.dumps(function["arguments"], ensure_ascii=False)
    header = f"assistant to=functions.{function['name'].removeprefix('functions.')}<|channel|>commentary json"
    return f"<|start|>{header}<|message|>{arguments}<|call|>"


def _opened(rendered: RenderedTokens) -> RenderedTokens:
    """With the turn's header alone at the end: the model says which channel it speaks in."""
    cut = {name: getattr(rendered, name)[:-FORCED] for name in ("token_ids", "message_indices", "sampled_mask")}
    return replace(rendered, **cut, is_content=rendered.is_content[:-FORCED])
