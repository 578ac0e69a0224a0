"""The renderer over characters, with images: for tests of conversations that have some."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Several

import numpy as np

from miles_core.contracts.images import IMAGE_PART, Rendered, has_images
from miles_core.testing.fakes.char_renderer import CharRenderer
from miles_core.testing.fakes.char_tool_renderer import CharToolRenderer
from miles_core.types.image import ImageInput, ImageSpan
from miles_core.types.image_file import ImageFile
from miles_core.types.sequence import TokenArray
from miles_core.types.task import Message, ToolDefinition

PLACEHOLDER = 1


class CharImageRenderer(CharToolRenderer):
    """As CharToolRenderer, and as CharRenderer where there are neither tools nor calls. A part of content that is an
    image is one placeholder (1) for each of its rows of pixels, at most 9; its pixel inputs are `bytes`, uint8 [n]: the
    file's own. Parts of a message follow each other without anything between. No answer has an image."""

    def render(
        self, messages: Several[Message], *, tools: Several[ToolDefinition] = (), generation: bool = True
    ) -> TokenArray:
        """See `Renderer.render`. Raises ValueError for an image, which would be lost."""
        _refuse(messages)
        return super().render(messages, tools=tools, generation=generation)

    def bridge(
        self, tokens: TokenArray, messages: Several[Message], *, tools: Several[ToolDefinition] = ()
    ) -> TokenArray:
        _refuse(messages)
        return super().bridge(tokens, messages, tools=tools)

    def render_images(
        self, messages: Several[Message], *, tools: Several[ToolDefinition] = (), generation: bool = True
    ) -> Rendered:
        """See `ImageRenderer.render_images`."""
        return _rendered(super().render(messages, tools=tools, generation=generation), messages)

    def bridge_images(
        self, tokens: TokenArray, messages: Several[Message], *, tools: Several[ToolDefinition] = ()
    ) -> Rendered:
        """See `ImageRenderer.bridge_images`."""
        lines = [code for message in messages for code in self._line(message)]
        return _rendered(np.array([*super().bridge(tokens, ()).tolist(), *lines], np.int32), messages)

    def _line(self, message: Message) -> list[int]:
        content = message.get("content")
        if not isinstance(content, list | tuple):
            return super()._line(message)
        if message.get("role") == "assistant" and has_images([message]):
            raise ValueError("an assistant's message has no images")
        codes = [code for part in content for code in self._part(part)]
        return [*codes, *super()._line({**message, "content": ""})]

    def _part(self, part: Mapping[str, object]) -> list[int]:
        if part.get("type") == IMAGE_PART:
            return [PLACEHOLDER] * min(9, ImageFile.of_part(part).height)
        if part.get("type") == "text":
            return [*CharRenderer().encode(str(part["text"])).tolist()]
        raise ValueError(f"there is no part of type {part.get('type')!r}")


def _refuse(messages: Several[Message]) -> None:
    if has_images(messages):
        raise ValueError("there is an image in it: render_images gives it beside the tokens")


def _rendered(tokens: TokenArray, messages: Several[Message]) -> Rendered:
    """Which runs of placeholders are which image, in order."""
    places = np.flatnonzero(tokens == PLACEHOLDER).tolist()
    spans = []
    for message in messages:
        content = message.get("content")
        for part in content if isinstance(content, list | tuple) else ():
            if part.get("type") == IMAGE_PART:
                file = ImageFile.of_part(part)
                own, places = places[: min(9, file.height)], places[min(9, file.height) :]
                spans.append(ImageSpan(own[0], own[-1] + 1, _input(file)))
    return Rendered(tokens, tuple(spans))


def _input(file: ImageFile) -> ImageInput:
    arrays = {"bytes": np.frombuffer(file.data, np.uint8)}
    return ImageInput.of(file.data, file.media_type, file.width, file.height, arrays)
