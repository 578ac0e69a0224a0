"""A session's replies by the forms in which a client of some dialect has seen them."""

from __future__ import annotations

from collections.abc import Callable

from miles_core.session.tree import Tree
from miles_core.types.task import Message


class Recall:
    """Finds the stored reply that a client sends back at a place of its history. Of replies with one form at one place
    (a turn that was asked again, branches) the newest is found. Each turn is looked at once, however often it is
    replayed."""

    def __init__(self, tree: Tree, forms: Callable[[Message], tuple[str, ...]]) -> None:
        self._tree = tree
        self._forms = forms
        self._known: dict[tuple[int, str], Message] = {}
        self._seen = 0

    def find(self, place: int, form: str) -> Message | None:
        """`place` is the message's number in its conversation, from 0."""
        for node in self._tree.since(self._seen):
            at = len(node.messages) - 1
            self._known |= {(at, seen): node.reply for seen in self._forms(node.reply)}
            self._seen += 1
        return self._known.get((place, form))
