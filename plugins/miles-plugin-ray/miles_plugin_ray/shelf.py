"""The actor that keeps references to one trainer's objects: who is given its name in a delivery can ask for them.

References that travel inside Ray's own calls are counted by Ray, so that an object lives as long as somebody holds it
and no longer; one that was pickled into a delivery would never be freed.
"""

from __future__ import annotations

from typing import Any

NAMESPACE = "miles"


class Shelf:
    """Holds the references of each version until it is dropped. The objects themselves stay where they were made."""

    def __init__(self) -> None:
        self._versions: dict[int, list[Any]] = {}

    def keep(self, version: int, references: list[Any]) -> None:
        self._versions[version] = references

    def give(self, version: int) -> list[Any]:
        """Empty when the version is not, or no longer, here."""
        return self._versions.get(version, [])

    def drop(self, version: int) -> None:
        self._versions.pop(version, None)
