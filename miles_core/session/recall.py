"""A session's replies by the forms in which a client of some dialect has seen them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Sequence as Several
from typing import Any

from miles_core.session.messages import ROLE_OF, normal
from miles_core.session.tree import Node, Tree
from miles_core.types.task import Message


class Recall:
    """Finds the stored reply that a client sends back at a place of its history. Branches may have different replies of
    one form at one place: that whose history is the client's is found; of those, and where none's is, the newest. Each
    turn is looked at once, however often it is replayed."""

    def __init__(self, tree: Tree, forms: Callable[[Message], tuple[str, ...]]) -> None:
        self._tree = tree
        self._forms = forms
        self._known: dict[tuple[int, str], list[Node]] = {}  # the newest last
        self._seen = 0

    def find(self, before: Several[Mapping[str, Any]], form: str) -> Message | None:
        """`before` are the messages of the client's history before this one, as far as they are recognised."""
        for node in self._tree.since(self._seen):
            at = len(node.messages) - 1
            for seen in self._forms(node.reply):
                self._known.setdefault((at, seen), []).append(node)
            self._seen += 1
        nodes = self._known.get((len(before), form))
        if nodes is None:
            return None
        if any(node.reply != nodes[-1].reply for node in nodes):
            history = tuple(map(_normal, before))
            mine = [node for node in nodes if node.messages[:-1] == history]
            nodes = mine or nodes
        return nodes[-1].reply


def _normal(message: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is wrong with a message is told when all of them are read."""
    try:
        return normal(message) if message.get("role") in ROLE_OF else message
    except ValueError:
        return message
