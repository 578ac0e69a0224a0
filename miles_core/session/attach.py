"""Where a request attaches to the tree. A policy decides, and says which nodes are trained on at the end."""

from __future__ import annotations

from collections.abc import Sequence as Several
from dataclasses import dataclass
from typing import Protocol

from miles_core.contracts.engine import Finish
from miles_core.contracts.rollout import Matcher
from miles_core.session.faults import SessionFault
from miles_core.session.matching import difference
from miles_core.session.tree import Node, Tree
from miles_core.types.task import Message, ToolDefinition


@dataclass(frozen=True, slots=True)
class Attachment:
    """A request's place: it goes on after `parent` (None: from the beginning) with the messages `added`."""

    parent: Node | None
    added: tuple[Message, ...]


class Policy(Protocol):
    """What a harness may do with its history."""

    @property
    def concurrent(self) -> bool:
        """Whether calls may be in flight side by side."""
        ...

    def attach(
        self, tree: Tree, messages: tuple[Message, ...], tools: tuple[ToolDefinition, ...], matcher: Matcher
    ) -> Attachment:
        """The tools are fixed at a root: the same messages with others are another conversation. Raises SessionFault
        (409) that says at which message history diverged and how."""
        ...

    def kept(self, tree: Tree) -> tuple[Node, ...]:
        """The leaves that are trained on."""
        ...


class Linear:
    """Only the tail may grow, and the last turn may be asked again with the same messages: the turn that is replaced
    stays in the tree and is not trained on."""

    concurrent = False

    def attach(
        self, tree: Tree, messages: tuple[Message, ...], tools: tuple[ToolDefinition, ...], matcher: Matcher
    ) -> Attachment:
        tip = _had_after_all(tree.lost, messages, tools, matcher) or tree.newest
        if tip is None:
            return Attachment(None, messages)
        if tip.tools != tools:
            raise _other_tools(tip.tools, tools)
        stored = tip.messages
        same = matching_prefix(stored, messages, matcher)
        if same == len(stored):
            refuse_truncated(tip)
            return Attachment(tip, messages[same:])
        if same == len(messages) == len(stored) - 1:
            return Attachment(tip.parent, tip.added)
        raise _diverged(stored, messages, same)

    def kept(self, tree: Tree) -> tuple[Node, ...]:
        return () if tree.newest is None else (tree.newest,)


class Branching:
    """Any history goes: a request goes on from the deepest turn whose whole conversation it begins with, and becomes a
    branch of it; one that goes on from nowhere (a sub-agent, a compacted history, other tools) begins a new root.

    A turn that was asked again with the same messages is replaced by the last answer, unless somebody went on from it.
    """

    concurrent = True

    def attach(
        self, tree: Tree, messages: tuple[Message, ...], tools: tuple[ToolDefinition, ...], matcher: Matcher
    ) -> Attachment:
        deepest: Node | None = None
        matched = 0
        open_places: list[tuple[Node | None, int]] = [(None, 0)]
        while open_places:
            node, used = open_places.pop()
            if node is not None and (used, node.number) > (matched, deepest.number if deepest else -1):
                deepest, matched = node, used
            for child in tree.children(node):
                path = (*child.added, child.reply)
                end = used + len(path)
                same_tools = node is not None or child.tools == tools
                if (
                    same_tools
                    and end < len(messages)
                    and matching_prefix(path, messages[used:end], matcher) == len(path)
                ):
                    open_places.append((child, end))
        if deepest is not None:
            refuse_truncated(deepest)
        return Attachment(deepest, messages[matched:])

    def kept(self, tree: Tree) -> tuple[Node, ...]:
        standing = (node for node in tree.nodes if tree.stands(node))
        return tuple(node for node in standing if not _ways_on(tree, node) and not _asked_again(tree, node))


POLICIES: dict[str, type[Policy]] = {"linear": Linear, "branching": Branching}


def matching_prefix(stored: Several[Message], replayed: Several[Message], matcher: Matcher) -> int:
    """How many messages from the beginning match."""
    for place, (ours, theirs) in enumerate(zip(stored, replayed, strict=False)):
        if not matcher.matches(ours, theirs):
            return place
    return min(len(stored), len(replayed))


def _had_after_all(
    lost: Node | None, messages: Several[Message], tools: Several[ToolDefinition], matcher: Matcher
) -> Node | None:
    """The turn whose answer seemed not to reach the client, when the client goes on from it."""
    if lost is None or lost.tools != tools:
        return None
    stored = lost.messages
    return lost if matching_prefix(stored, messages, matcher) == len(stored) < len(messages) else None


def _ways_on(tree: Tree, node: Node | None) -> list[Node]:
    """The turns that go on from a node, and stand."""
    return [child for child in tree.children(node) if tree.stands(child)]


def _asked_again(tree: Tree, node: Node) -> bool:
    return any(
        each.number > node.number and each.added == node.added and each.tools == node.tools
        for each in _ways_on(tree, node.parent)
    )


def refuse_truncated(node: Node) -> None:
    """A turn that was cut by its token limit has no end that one could go on from."""
    if node.sampled.finish is Finish.LENGTH:
        raise SessionFault(
            409,
            "turn_truncated",
            f"turn {node.turn} was cut after {len(node.sampled.tokens)} tokens (finish_reason `length`), "
            "and a cut turn cannot be continued",
            mend="ask the same turn again, or end the episode",
        )


def _diverged(stored: Several[Message], messages: Several[Message], same: int) -> SessionFault:
    if same < len(messages) and same < len(stored):
        role = messages[same]["role"]
        what = f"history diverged at message {same} ({role}): {difference(stored[same], messages[same])}"
    else:
        what = (
            f"history was cut: the request ends after message {len(messages) - 1}, "
            f"and the session already has {len(stored)} messages"
        )
    return SessionFault(
        409,
        "history_diverged",
        what,
        mend="a linear session only grows at its end: replay every message as it was sent and received",
    )


def _other_tools(stored: Several[ToolDefinition], given: Several[ToolDefinition]) -> SessionFault:
    ours, theirs = ([tool["function"]["name"] for tool in tools] for tools in (stored, given))
    if ours != theirs:
        how = f"the session has {', '.join(ours) or 'none'}, the request {', '.join(theirs) or 'none'}"
    else:
        changed = next(name for name, a, b in zip(ours, stored, given, strict=True) if a != b)
        how = f"{changed!r:.60} has another description or other parameters"
    return SessionFault(
        409,
        "history_diverged",
        f"history diverged before message 0: `tools` differ: {how}",
        mend="the tools of a conversation are fixed by its first call: send the same with every call",
    )
