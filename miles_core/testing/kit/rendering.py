"""What is rendered to try a renderer: conversations, and where they come from for a model's renderer."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from miles_core.contracts.model import Renderer
from miles_core.errors import MilesError
from miles_core.testing.fakes.tiny_model import tiny_model
from miles_core.testing.kit.check import fail, skip
from miles_core.testing.kit.offline import offline
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.types.sequence import TokenArray
from miles_core.types.task import Message, ToolDefinition

TEXTS = (
    "2+2=", "4", "Hello, world!", "", " ", "a\n\nb", "  two spaces", "tab\there", "ends with a line\n", "#hash {x} <y>",
    "é ü ß", "漢字かな", "🙂👩‍🚀", "e\u0301", "\u200b", "a\r\nb",
)  # fmt: skip
"""Ordinary first, then what breaks tokenizers and templates."""


@dataclass(frozen=True, slots=True)
class Rendering:
    """A renderer, and the size of the vocabulary that its tokens belong to."""

    renderer: Renderer
    vocabulary: int

    def texts(self) -> list[str]:
        """Those of TEXTS that it can encode; what it has no tokens for, it must refuse with ValueError."""
        found = []
        for text in TEXTS:
            try:
                self.renderer.encode(text)
            except ValueError:
                continue
            found.append(text)
        if "4" not in found:
            fail('it has no tokens for "4"', "encode must take digits: an answer that is not a text cannot be read")
        return found

    def conversations(self) -> Iterator[list[Message]]:
        """Of one to five messages, that it can express. The first is one question."""
        texts = self.texts()
        given: list[list[Message]] = [[user("2+2=")]]
        for place, text in enumerate(texts):
            other = texts[(place + 1) % len(texts)]
            given.append([user(text), assistant(other), user(text)])
        given.append([system("Be brief."), user("2+2="), assistant("4"), user("3+3="), assistant("6")])
        given.append([user("2+2="), assistant("4"), {"role": "tool", "content": "5"}])
        for messages in given:
            if self.expresses(messages):
                yield messages

    def expresses(self, messages: list[Message]) -> bool:
        try:
            self.renderer.render(messages)
        except ValueError as error:
            if [message["role"] for message in messages] == ["user"]:
                fail(f"it cannot render one user message: {error}", "render must take [{role: user, content: text}]")
            return False
        return True

    def sampled(self, text: str, *, stop: bool = True) -> TokenArray:
        """An answer as a model samples it after a question: what the renderer writes for it there, up to a stop token.

        That may be more than the text: a mark before it, or the end of a thought that the prompt opened. A format that
        writes the text alone is taken at its word, since what it writes behind it is no more the model's.
        """
        end = self.renderer.stop_tokens[:1] if stop else ()
        said = self.renderer.encode(text)
        question = [user("2+2=")]
        prompt = self.renderer.render(question)
        whole = self.renderer.render([*question, assistant(text)], generation=False)
        written = whole[len(prompt) :]
        if np.array_equal(whole[: len(prompt)], prompt) and not np.array_equal(written[: len(said)], said):
            stops = np.flatnonzero(np.isin(written, self.renderer.stop_tokens))
            said = written[: stops[0]] if len(stops) else written
        return np.concatenate([said, np.array(end, np.int32)]).astype(np.int32)


def rendering_of(subject: ComponentSubject) -> Rendering:
    """The component itself, or the renderer of the model that it is."""
    if subject.registered.kind == "renderer":
        files = tiny_model(subject.folder / "tiny-model")
        return Rendering(subject.build(model=files), files.card.vocabulary)
    model, card = materialised(subject)
    return Rendering(model.renderer(), card.vocabulary)


def materialised(subject: ComponentSubject) -> tuple[Any, Any]:
    """A model component and its card, once its files are here. Skips when they would have to be fetched."""
    model = subject.build()
    with offline():
        try:
            files = model.materialise()
        except (MilesError, OSError) as error:
            skip(f"the model's files are not on this machine, and nothing is fetched here: {error}")
    return model, files.card


def user(text: str) -> Message:
    return {"role": "user", "content": text}


def assistant(text: str) -> Message:
    return {"role": "assistant", "content": text}


def system(text: str) -> Message:
    return {"role": "system", "content": text}


def tool() -> ToolDefinition:
    """A tool that renderers are given; a fresh one each time, so that no renderer changes another's."""
    parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    return {"type": "function", "function": {"name": "add", "description": "Add.", "parameters": parameters}}


def calling(text: str) -> Message:
    """An assistant's call of `tool()`."""
    function = {"name": "add", "arguments": f'{{"text": "{text}"}}'}
    return {
        "role": "assistant",
        "content": "",
        "tool_calls": [{"id": "call-0", "type": "function", "function": function}],
    }
