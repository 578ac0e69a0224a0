"""A session's replies by the forms in which a client of some dialect has seen them."""

from __future__ import annotations

from collections.abc import Callable

from miles_core.session.tree import Tree
from miles_core.types.task import Message


class Recall:
    """Finds the stored reply that a client sends back. Of replies with one form the newest is found. Each turn is
    looked at once, however often it is replayed."""

    def __init__(self, tree: Tree, forms: Callable[[Message], tuple[str, ...]]) -> None:
        self._tree = tree
        self._forms = forms
        self._known: dict[str, Message] = {}
        self._seen = 0

    def find(self, form: str) -> Message | None:
        for node in self._tree.since(self._seen):
            self._known |= dict.fromkeys(self._forms(node.reply), node.reply)
            self._seen += 1
        return self._known.get(form)
