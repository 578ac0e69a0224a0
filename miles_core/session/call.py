"""A call in no dialect: what it asks of a session, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass

from miles_core.session.tree import Node
from miles_core.types.sequence import TokenArray
from miles_core.types.task import Message, ToolDefinition


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """A call in no dialect: messages and tools in normal form, and what it asks of sampling (None: as the recipe says).

    `ignored` are keys that were understood, would change sampling, and are not honoured: they are counted.
    """

    messages: tuple[Message, ...]
    max_new_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    ignored: tuple[str, ...] = ()
    tools: tuple[ToolDefinition, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class TokenRequest:
    """A call of a client that renders itself: int32 [n] `tokens`, the whole prompt, are sampled from as they are.
    `stop_tokens` are the client's beside the recipe's."""

    tokens: TokenArray
    max_new_tokens: int | None = None
    temperature: float | None = None
    seed: int | None = None
    ignored: tuple[str, ...] = ()
    stop_tokens: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, eq=False)
class ChatReply:
    """What became of a call: the node that it made, and how many tokens its prompt had."""

    node: Node

    @property
    def prompt_tokens(self) -> int:
        return self.node.first_sampled
