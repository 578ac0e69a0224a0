"""The append-only tree of token-exact checkpoints.

A node is one model call: the tokens that were put before it since its parent (never sampled), the tokens that it
sampled, and the messages that both stand for. A path from a root to a node is one conversation, token for token. Nodes
hold what they add and no more, so a token is kept once however many nodes follow it.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

import numpy as np

from miles_core.contracts.engine import Finish, VersionSpan
from miles_core.types.image import ImageSpan, ImageSpans
from miles_core.types.sequence import Array, FloatArray, TokenArray
from miles_core.types.task import Message, ToolDefinition


@dataclass(frozen=True, slots=True, eq=False)
class Sampled:
    """What one model call sampled. tokens int32 [m], m >= 1, a stop token included; logprobs float32 [m] at
    `temperature`; `spans` cover [0, m). `routing` has the rows of the node's own tokens (see `Tree.append`)."""

    request: str
    engine: str
    tokens: TokenArray
    logprobs: FloatArray
    spans: tuple[VersionSpan, ...]
    finish: Finish
    temperature: float
    cached_tokens: int = 0
    routing: Array | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """One finished turn.

    number   its place in order of commits, from 0
    parent   the turn that it follows; None for a root
    turn     how many turns stand before it on its path
    added    the messages that the request added after the parent's reply
    bridge   int32: the tokens of `added`, up to where the model began (of a root: the whole rendered prompt)
    sampled  what the model sampled then
    reply    the assistant's message that it says
    again    how often its parent had been asked with the same messages before
    start    tokens before this node on its path
    tools    what the assistant may call: the root's, which every node after it has
    images   which tokens of `bridge` stand for which image; places are those on its path
    """

    number: int
    parent: Node | None
    turn: int
    added: tuple[Message, ...]
    bridge: TokenArray
    sampled: Sampled
    reply: Message
    start: int
    again: int = 0
    tools: tuple[ToolDefinition, ...] = ()
    images: ImageSpans = ()

    @property
    def stop(self) -> int:
        """Tokens on its path, its own included."""
        return self.start + len(self.bridge) + len(self.sampled.tokens)

    @property
    def first_sampled(self) -> int:
        return self.start + len(self.bridge)

    @property
    def path(self) -> tuple[Node, ...]:
        """From the root to this node."""
        nodes = []
        node: Node | None = self
        while node is not None:
            nodes.append(node)
            node = node.parent
        return tuple(reversed(nodes))

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation, the reply included."""
        return tuple(message for node in self.path for message in (*node.added, node.reply))

    @property
    def tokens(self) -> TokenArray:
        """int32 [stop]: every token of the conversation."""
        return np.concatenate([part for node in self.path for part in (node.bridge, node.sampled.tokens)])

    @property
    def all_images(self) -> ImageSpans:
        """Those of its path."""
        spans: list[ImageSpan] = []
        for node in self.path:
            spans += node.images
        return tuple(spans)


class Tree:
    """The nodes of one session. Nothing is ever changed or removed; a turn whose answer did not reach the client is
    marked (`withdraw`) and does not stand, unless somebody goes on from it: then it had reached it after all."""

    def __init__(self) -> None:
        self._nodes: list[Node] = []
        self._withdrawn: set[int] = set()
        self._children: dict[int | None, list[Node]] = defaultdict(list)

    def __len__(self) -> int:
        return len(self._nodes)

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(self._nodes)

    @property
    def newest(self) -> Node | None:
        """The newest turn that stands."""
        return next((node for node in reversed(self._nodes) if self.stands(node)), None)

    @property
    def lost(self) -> Node | None:
        """The last turn of all, where it does not stand."""
        return self._nodes[-1] if self._nodes and not self.stands(self._nodes[-1]) else None

    def since(self, number: int) -> tuple[Node, ...]:
        """Every node but the first `number`."""
        return tuple(self._nodes[number:])

    def withdraw(self, node: Node) -> None:
        self._withdrawn.add(node.number)

    def stands(self, node: Node) -> bool:
        return node.number not in self._withdrawn or bool(self._children.get(node.number))

    def children(self, node: Node | None) -> tuple[Node, ...]:
        """In order of commits; of None: the roots."""
        return tuple(self._children.get(None if node is None else node.number, ()))

    def append(
        self,
        parent: Node | None,
        added: tuple[Message, ...],
        bridge: TokenArray,
        sampled: Sampled,
        reply: Message,
        again: int = 0,
        tools: tuple[ToolDefinition, ...] = (),
        images: ImageSpans = (),
    ) -> Node:
        """A new node under `parent`. Arrays are copied and become read-only. `tools` are a root's; a node under a
        parent has the parent's.

        `sampled.routing`, where there is one, is the engine's for the whole request, [n-1, layers, k]; the node keeps
        the rows of what it computed itself: from the parent's last token to its own last but one.
        """
        start = 0 if parent is None else parent.stop
        kept = Sampled(
            sampled.request,
            sampled.engine,
            _frozen(sampled.tokens),
            _frozen(sampled.logprobs),
            sampled.spans,
            sampled.finish,
            sampled.temperature,
            sampled.cached_tokens,
            None if sampled.routing is None else _frozen(sampled.routing[max(start - 1, 0) :]),
        )
        turn = 0 if parent is None else parent.turn + 1
        fixed = tools if parent is None else parent.tools
        number, own = len(self._nodes), _frozen(bridge)
        node = Node(number, parent, turn, added, own, kept, reply, start, again, fixed, images)
        self._nodes.append(node)
        self._children[None if parent is None else parent.number].append(node)
        return node


def _frozen(array: Array) -> Array:
    copy = array.copy()
    copy.setflags(write=False)
    return copy
