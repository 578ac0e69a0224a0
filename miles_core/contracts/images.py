"""Conversations with images: what a renderer has beside its contract, and the one way to ask it.

An image is a part of a message's content, `{"type": "image_url", "image_url": {"url": "data:image/png;base64,…"}}`,
with the file in base64. Whoever renders a conversation calls `rendered` and `bridged`: a conversation without images
goes through `Renderer.render` and `Renderer.bridge` as ever, one with images through `ImageRenderer`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from miles_core.contracts.model import Renderer
from miles_core.errors import PluginError, ValidationError
from miles_core.types.image import ImageSpans, check_image_spans
from miles_core.types.sequence import TokenArray
from miles_core.types.task import Message, Task, ToolDefinition

IMAGE_PART = "image_url"
"""The `type` of a part that is an image."""


@dataclass(frozen=True, slots=True, eq=False)
class Rendered:
    """Tokens int32 [n], and which of them stand for which image, in order. The placeholders are expanded: an image has
    as many tokens as the model has states for it."""

    tokens: TokenArray
    images: ImageSpans = ()


@runtime_checkable
class ImageRenderer(Protocol):
    """What a renderer has beside `Renderer` when its family takes images. Equal files give equal tokens and equal pixel
    inputs; the tokens of a conversation without images are those of `render` and `bridge`, which raise ValueError for
    one with images: they would lose them."""

    def render_images(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = (), generation: bool = True
    ) -> Rendered:
        """As `Renderer.render`. Raises ValueError too for an image that cannot be read, and where it has no processor
        of images."""
        ...

    def bridge_images(
        self, tokens: TokenArray, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> Rendered:
        """As `Renderer.bridge`. The spans count from the bridge's own first token."""
        ...


def has_images(messages: Sequence[Message]) -> bool:
    """Whether a part of a message is an image."""
    return any(
        isinstance(content := message.get("content"), list | tuple)
        and any(isinstance(part, dict) and part.get("type") == IMAGE_PART for part in content)
        for message in messages
    )


def rendered(
    renderer: Renderer, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = (), generation: bool = True
) -> Rendered:
    """The tokens and images of a conversation. Raises ValueError as the renderer does, and for images where it takes
    none; PluginError when what it gives contradicts itself."""
    if not has_images(messages):
        return Rendered(renderer.render(messages, tools=tools, generation=generation))
    return _checked(renderer, _taking(renderer).render_images(messages, tools=tools, generation=generation))


def bridged(
    renderer: Renderer, tokens: TokenArray, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
) -> Rendered:
    """The tokens to append, and their images, from the bridge's own first token on. Raises as `rendered` does."""
    if not has_images(messages):
        return Rendered(renderer.bridge(tokens, messages, tools=tools))
    return _checked(renderer, _taking(renderer).bridge_images(tokens, messages, tools=tools))


def prompt_tokens(renderer: Renderer, task: Task) -> TokenArray:
    """The tokens that a task's prompt becomes, the placeholders of its images included."""
    return rendered(renderer, task.messages).tokens


def _taking(renderer: Renderer) -> ImageRenderer:
    if not isinstance(renderer, ImageRenderer):
        raise ValueError(f"there is an image in it, and the renderer {type(renderer).__name__} takes none")
    return renderer


def _checked(renderer: Renderer, found: Rendered) -> Rendered:
    tokens = found.tokens
    try:
        if not (isinstance(tokens, np.ndarray) and tokens.dtype == np.int32 and tokens.ndim == 1):
            raise ValidationError("its tokens are not int32 [n]")
        check_image_spans(found.images, len(tokens), "its images")
    except ValidationError as error:
        raise PluginError(
            f"renderer {type(renderer).__name__} gave images that contradict themselves: {error}",
            mend="see contracts.images.ImageRenderer",
        ) from error
    return found
