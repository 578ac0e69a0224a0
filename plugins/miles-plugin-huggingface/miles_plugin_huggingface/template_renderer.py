"""Rendering by a model's own chat template (jinja), as transformers does it.

The template renders the conversation to text, and the text is tokenized with special tokens parsed. So a message that
spells a special token becomes that token: the formats of particular families, whose renderers insert marks as ids, do
not have this weakness. Templates are untrusted code and run in jinja's immutable sandbox.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
import numpy as np
import numpy.typing as npt
from jinja2.ext import Extension, LoopControlExtension
from jinja2.sandbox import ImmutableSandboxedEnvironment
from tokenizers import Tokenizer

from miles_core import Message, Parsed, RequestError, ToolDefinition
from miles_plugin_huggingface.text_tokens import text_ids

TokenArray = npt.NDArray[np.int32]

_QUESTION, _ANSWER = "MILES-QUESTION", "MILES-ANSWER"
"""Contents of a conversation that is rendered to see what stands between an answer and the next message."""


class TemplateRenderer:
    """Renderer of any model with a chat template. Raises RequestError when the template does not compile."""

    def __init__(
        self,
        tokenizer: Tokenizer,
        template: str,
        special: Mapping[str, str],
        stop_tokens: tuple[int, ...],
        *,
        where: str = "",
    ) -> None:
        self._tokenizer = tokenizer
        self._special = dict(special)
        self._stop_tokens = stop_tokens
        try:
            self._template = _environment().from_string(template)
        except jinja2.TemplateSyntaxError as error:
            raise RequestError(f"the chat template does not compile: {error}", where=where) from error

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        return self._stop_tokens

    def render(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = (), generation: bool = True
    ) -> TokenArray:
        """As Renderer.render. Raises ValueError with the template's own words when it refuses the conversation."""
        _refuse(tools)
        return self.encode(self._text(messages, generation=generation))

    def bridge(
        self, tokens: TokenArray, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> TokenArray:
        """As Renderer.bridge. Raises ValueError when the template changes what stands before the new messages."""
        _refuse(tools)
        before: list[Message] = [{"role": "user", "content": _QUESTION}, {"role": "assistant", "content": _ANSWER}]
        closed = self._text(before, generation=False)
        longer = self._text([*before, *messages], generation=True)
        if not longer.startswith(closed):
            raise ValueError("the chat template is not append-only: it changes earlier turns when messages follow")
        ending = closed.rpartition(_ANSWER)[2]
        if len(tokens) and int(tokens[-1]) in self._stop_tokens:
            ending = ending.removeprefix(self.decode(tokens[-1:]))
        return self.encode(ending + longer[len(closed) :])

    def parse(self, tokens: TokenArray, *, tools: Sequence[ToolDefinition] = ()) -> Parsed:
        """The text before the first stop token, special tokens left out; complete when there is one."""
        ends = np.flatnonzero(np.isin(tokens, self._stop_tokens))
        text = tokens[: ends[0]] if len(ends) else tokens
        content = str(self._tokenizer.decode(text.tolist(), skip_special_tokens=True))
        return Parsed({"role": "assistant", "content": content}, complete=bool(len(ends)))

    def decode(self, tokens: TokenArray) -> str:
        return str(self._tokenizer.decode(tokens.tolist(), skip_special_tokens=False))

    def encode(self, text: str) -> TokenArray:
        return np.asarray(text_ids(self._tokenizer, text), dtype=np.int32)

    def _text(self, messages: Sequence[Message], *, generation: bool) -> str:
        plain = [dict(message) for message in messages]
        try:
            text: str = self._template.render(messages=plain, add_generation_prompt=generation, **self._special)
        except (jinja2.TemplateError, TypeError) as error:  # TypeError: e.g. a template that adds text to None
            raise ValueError(f"the chat template cannot express this conversation: {error}") from error
        _refuse_what_was_lost(messages, text)
        return text


def _refuse_what_was_lost(messages: Sequence[Message], text: str) -> None:
    """jinja prints what it does not know as nothing, and a list as Python would: neither is what was meant."""
    for message in messages:
        content = message.get("content")
        if content is None and not message.get("tool_calls"):
            raise ValueError(f"a message of {message.get('role')!r} has no content")
        if isinstance(content, list | tuple) and str(content) in text:
            raise ValueError(f"the chat template reads text only, got content {content!r:.80}")


def _refuse(tools: Sequence[ToolDefinition]) -> None:
    """A template may write tools, but it cannot read a call back."""
    if tools:
        raise ValueError("a chat template cannot read tool calls back: use the renderer of the model's family")


class _Generation(Extension):
    """`{% generation %}...{% endgeneration %}` marks an assistant's words for transformers; here it is its body."""

    tags = {"generation"}  # noqa: RUF012 (jinja's own interface)

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, LoopControlExtension]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return environment


def _to_json(value: Any, ensure_ascii: bool = False, **options: Any) -> str:
    """Without jinja's escaping of HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, **options)


def _raise(message: str) -> None:
    raise jinja2.TemplateError(message)
