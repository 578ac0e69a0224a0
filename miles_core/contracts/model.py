"""A model: its files, what its configuration alone tells, and how messages become tokens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from miles_core.types.sequence import TokenArray
from miles_core.types.task import Message, ToolDefinition


@dataclass(frozen=True, slots=True)
class ModelCard:
    """What is known of a model from its configuration, without loading weights or importing torch.

    `architecture` is the Hugging Face class name; `context` the longest sequence in tokens; `parameters` the exact
    number of weights (tied ones counted once); `experts` 0 for dense models.
    """

    name: str
    architecture: str
    context: int
    vocabulary: int
    hidden: int
    layers: int
    parameters: int
    stop_tokens: tuple[int, ...]
    experts: int = 0
    tied_embeddings: bool = False


@dataclass(frozen=True, slots=True)
class ModelFiles:
    """A local Hugging Face directory (config.json, safetensors, tokenizer.json) and its card.

    `builder` is `module:attr` of a callable that builds the torch module from the directory where a model needs custom
    modules; None: the backend loads the architecture itself.
    """

    path: Path
    card: ModelCard
    builder: str | None = None


@dataclass(frozen=True, slots=True)
class Parsed:
    """What a renderer reads back from sampled tokens: the assistant's message, and whether it ended by itself.

    The message has `role` and `content`, and where the tokens say so `reasoning_content` and `tool_calls` in the OpenAI
    shape (see `Message`); a call has an `id` only where the model's own format has one. What cannot be read as a call
    (broken JSON, a call that was cut) stays in the content as text.
    """

    message: Message
    complete: bool


class Renderer(Protocol):
    """Messages to tokens and back. Pure and thread-safe; tokens that a model sampled are never tokenized again.

    `tools` are what the assistant may call; they are the same for a whole conversation, and every call about it gets
    them. A renderer that cannot express tools raises ValueError when `render` or `bridge` is given any.
    """

    @property
    def stop_tokens(self) -> tuple[int, ...]:
        """Token ids that end an assistant turn."""
        ...

    def render(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = (), generation: bool = True
    ) -> TokenArray:
        """int32 tokens of the conversation; with `generation`, up to where the assistant's next token goes.

        Raises ValueError for a role, a part, a tool or a tool call that the family cannot express.
        """
        ...

    def bridge(
        self, tokens: TokenArray, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = ()
    ) -> TokenArray:
        """The int32 tokens to append to a finished assistant turn `tokens` so that `messages` follow and the
        assistant's next token can be sampled. Never changes `tokens`. Raises ValueError as `render` does."""
        ...

    def parse(self, tokens: TokenArray, *, tools: Sequence[ToolDefinition] = ()) -> Parsed:
        """The assistant message that these sampled tokens (stop token included, if any) say; any tokens say something.
        Special tokens are left out of its content: rewards read text that a person would see; `decode` shows
        everything."""
        ...

    def decode(self, tokens: TokenArray) -> str:
        """Text of the tokens, special tokens included: for people."""
        ...

    def encode(self, text: str) -> TokenArray:
        """int32 tokens of plain text, with no special tokens added: `decode` gives the text back. Raises ValueError for
        text that has no tokens."""
        ...


class TemplateReference(Protocol):
    """What a renderer may have beside its contract: the checkpoint's own chat template, to be compared with.
    `miles families check` asks for it; nothing else does."""

    def template_tokens(
        self, messages: Sequence[Message], *, tools: Sequence[ToolDefinition] = (), generation: bool = True
    ) -> TokenArray | None:
        """int32 tokens of the text that the checkpoint's own template makes of the conversation, special tokens parsed,
        by other code than the renderer's own; None where no template can be had. Raises ValueError when the template
        refuses the conversation."""
        ...


class ModelSpec(Protocol):
    """A model family's plugin. Runs in the driver, without torch."""

    def describe(self) -> ModelCard:
        """The card, from configuration alone: nothing is downloaded or converted."""
        ...

    def materialise(self) -> ModelFiles:
        """The model as a local Hugging Face directory: fetched and converted when it is not there yet, atomically and
        checksummed; at once when it is. Raises RequestError when it is missing, truncated or has other shapes."""
        ...

    def renderer(self) -> Renderer:
        """The renderer of the family; needs `materialise` to have run."""
        ...
