"""`miles_core.Renderer` over a renderer of the library.

The library renders a whole conversation as the family's template does, and a template may rewrite the past: it drops
the reasoning of earlier turns, or an empty thinking block. A session's past cannot change. So here

- `bridge` asks the library for what stands between a finished turn and the next, and never looks at what was sampled
  but for its last token: the work of a turn grows with what is added, not with the history;
- `render` puts a conversation together from the same pieces: its beginning, each assistant message, and the bridges
  between. An assistant's message goes on from the opening of its turn, as a model would sample it there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from miles_core import ImageFile, Message, Parsed, Rendered, ToolDefinition, has_images
from miles_plugin_families.between import Between
from miles_plugin_families.images import FamilyImages, image_parts
from miles_plugin_families.messages import (
    is_native,
    number_answers,
    number_calls,
    to_library,
    tool_names,
    tools_to_library,
)
from miles_plugin_families.said import parsed
from miles_plugin_families.tokenizer import FamilyTokenizer

TokenArray = npt.NDArray[np.int32]
Json = dict[str, Any]


class FamilyRenderer:
    """One family's format over one tokenizer. `template_ids` gives the ids that the checkpoint's own template writes,
    of messages as the library takes them; None where there is no template. `images` where the family takes some; else
    `no_images` says why not."""

    def __init__(
        self,
        library: Any,
        tokenizer: FamilyTokenizer,
        *,
        as_sampled: bool = True,
        names_tools: bool = False,
        native_ids: bool = False,
        template_ids: Callable[..., list[int]] | None = None,
        images: FamilyImages | None = None,
        no_images: str = "its format has none",
    ) -> None:
        self._library = library
        self._tokenizer = tokenizer
        self._between = Between(library, tokenizer, as_sampled=as_sampled)
        self._names_tools = names_tools
        self._native_ids = native_ids
        self._template_ids = template_ids
        self._images = images
        self._no_images = no_images

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        return self._between.stops

    @property
    def vocabulary(self) -> int:
        """Ids that have a token."""
        return self._tokenizer.size

    @property
    def images_stand_in(self) -> bool:
        """Whether images are processed by something else than the checkpoint's own processor."""
        return self._images is not None and self._images.stands_in

    def render(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = (), generation: bool = True
    ) -> TokenArray:
        """As Renderer.render. Raises ValueError when the family's template refuses the conversation, and for an image,
        which would be lost: `render_images` gives it."""
        return self._rendered(to_library(messages, self._tokenizer.literal), tools, generation)

    def bridge(
        self, tokens: TokenArray, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> TokenArray:
        """As Renderer.bridge; a turn that was cut is closed first. A message of the assistant among `messages` was not
        sampled there: it is written as `render` does. Raises ValueError where `history: template` forbids to go on, and
        for an image, as `render` does."""
        return self._bridged(tokens, to_library(messages, self._tokenizer.literal), tools)

    def render_images(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = (), generation: bool = True
    ) -> Rendered:
        """As ImageRenderer.render_images."""
        images = self._seeing()
        given = to_library(messages, self._tokenizer.literal, images.stand_in)
        return images.rendered(self._rendered(given, tools, generation), messages)

    def bridge_images(
        self, tokens: TokenArray, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Rendered:
        """As ImageRenderer.bridge_images."""
        images = self._seeing()
        given = to_library(messages, self._tokenizer.literal, images.stand_in)
        return images.rendered(self._bridged(tokens, given, tools), messages)

    def parse(self, tokens: TokenArray, *, tools: Sequence[ToolDefinition] = ()) -> Parsed:
        """As Renderer.parse, read as the answer to a user."""
        opening = self._between.opening
        return parsed(self._library, self._tokenizer, tokens.tolist(), list(tools) or None, opening, self.stop_tokens)

    def decode(self, tokens: TokenArray) -> str:
        return self._tokenizer.decode(tokens.tolist())

    def encode(self, text: str) -> TokenArray:
        """As Renderer.encode. Raises ValueError for a text that the tokenizer would normalise to another."""
        ids = self._tokenizer.plain(text)
        if self._tokenizer.decode(ids) != text:
            raise ValueError(f"the tokenizer has no tokens for exactly {text!r:.80}")
        return _array(ids)

    def template_tokens(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = (), generation: bool = True
    ) -> TokenArray | None:
        """As TemplateReference.template_tokens."""
        if self._template_ids is None:
            return None
        seen = has_images(messages)
        given = to_library(messages, str, (lambda _: {"type": "image"}) if seen else None)
        ids = self._template_ids(given, tools_to_library(tools, str), generation)
        return _array(self._expanded(ids, messages) if seen else ids)

    def _rendered(self, given: list[Json], tools: Sequence[ToolDefinition], generation: bool) -> TokenArray:
        if self._native_ids:
            number_calls(given)
        if self._names_tools:
            _name_tools(given, tool_names(given))
        return _array(self._whole(given, self._tools(tools), generation))

    def _bridged(self, tokens: TokenArray, given: list[Json], tools: Sequence[ToolDefinition]) -> TokenArray:
        answers = list(takewhile(lambda message: message["role"] == "tool", given))
        if self._native_ids and not all(is_native(answer) for answer in answers):
            number_answers(answers, self._calls_of(tokens))
        if self._names_tools:
            calls = [] if all("name" in answer for answer in answers) else self._calls_of(tokens)
            names = tool_names([{"tool_calls": calls}, *given])
            _name_tools(given, names, [call["function"]["name"] for call in calls])
        last = int(tokens[-1]) if len(tokens) else None
        return _array(self._going_on(given, last, self._tools(tools), generation=True))

    def _seeing(self) -> FamilyImages:
        if self._images is None:
            raise ValueError(f"there is an image in it, and {self._no_images}")
        return self._images

    def _expanded(self, ids: list[int], messages: Sequence[Message]) -> list[int]:
        """The ids of a template, which writes one placeholder for an image, with as many as its processor says."""
        images = self._seeing()
        counts = [images.count(images.input(ImageFile.of_part(part))) for part in image_parts(messages)]
        if ids.count(images.placeholder) != len(counts):
            raise ValueError("the template has another number of placeholders than the messages have images")
        left = iter(counts)
        return [each for id in ids for each in ([id] * next(left) if id == images.placeholder else [id])]

    def _tools(self, tools: Sequence[ToolDefinition]) -> list[Json] | None:
        if tools and not self._between.writes_tools:
            raise ValueError("this family's format does not say which tools there are: describe them in a message")
        return tools_to_library(tools, self._tokenizer.literal)

    def _whole(self, given: list[Json], tools: list[Json] | None, generation: bool) -> list[int]:
        first = next((place for place, message in enumerate(given) if message["role"] == "assistant"), len(given))
        if first == 0:
            raise ValueError("a conversation begins with a message of the system or a user")
        if first == len(given):
            return self._between.ids(given, tools, generation)
        ids = self._between.ids(given[:first], tools, False)
        ids += self._between.turn(given[first], after_tool=given[first - 1]["role"] == "tool")
        if first + 1 == len(given) and not generation:
            return ids
        return ids + self._going_on(given[first + 1 :], ids[-1], tools, generation=generation)

    def _going_on(
        self, given: list[Json], last: int | None, tools: list[Json] | None, *, generation: bool
    ) -> list[int]:
        """The ids of `given` after a turn of the assistant whose last token is `last`."""
        ids: list[int] = []
        between: list[Json] = []
        for message in given:
            if message["role"] != "assistant":
                between.append(message)
                continue
            ids += self._between.following(between, ids[-1] if ids else last, tools, opens=False)
            ids += self._between.turn(message, after_tool=bool(between) and between[-1]["role"] == "tool")
            between = []
        if between or generation:
            ids += self._between.following(between, ids[-1] if ids else last, tools, opens=generation)
        return ids

    def _calls_of(self, tokens: TokenArray) -> Sequence[Json]:
        """The calls of the turn that `tokens` end with."""
        turn = self._between.last_turn(tokens.tolist())
        calls: Sequence[Json] = self.parse(np.asarray(turn, np.int32)).message.get("tool_calls", ())
        return calls


def _name_tools(given: list[Json], by_id: dict[str, str], in_order: Sequence[str] = ()) -> None:
    """Put the names of the tools into their answers. Raises ValueError where nothing says which tool answers."""
    answers = [message for message in given if message["role"] == "tool"]
    for place, message in enumerate(answers):
        if "name" in message:
            continue
        name = by_id.get(message.get("tool_call_id", ""))
        if name is None and len(answers) == len(in_order):
            name = in_order[place]
        if name is None:
            raise ValueError("this family's format names the tool that answers: send `name` with the tool's message")
        message["name"] = name


def _array(ids: list[int]) -> TokenArray:
    return np.asarray(ids, dtype=np.int32)
