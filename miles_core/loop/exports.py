"""Exported weights that evaluations work with: one folder for each version, there while somebody needs it."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path

from miles_core.errors import RunError
from miles_core.loop.ring import Ring


class Exports:
    """`exports/version-000007/` of the run's folder. It is written beside its place and renamed: what is there is
    whole, also after the run was killed."""

    def __init__(self, ring: Ring) -> None:
        self._ring = ring
        self._root = ring.recorder.folder.path.resolve() / "exports"
        self._users: Counter[int] = Counter()

    def has(self, version: int) -> bool:
        return self._place(version).is_dir()

    async def take(self, version: int) -> Path:
        """The folder of `version`, which the trainer holds, unless it was exported before. Give back each `take`."""
        place = self._place(version)
        if not place.is_dir():
            await self._write(place)
        self._users[version] += 1
        return place

    def give_back(self, version: int) -> None:
        self._users[version] -= 1
        if not self._users[version]:
            shutil.rmtree(self._place(version), ignore_errors=True)

    def keep_only(self, versions: set[int]) -> None:
        """Remove what an earlier process left for others."""
        for place in self._root.glob("version-*"):
            if place not in {self._place(version) for version in versions}:
                shutil.rmtree(place, ignore_errors=True)

    async def _write(self, place: Path) -> None:
        if self._ring.trainer is None:
            raise RunError("the run has no trainer to export from")
        draft = place.with_name(place.name + ".partial")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        try:
            await self._ring.trainer.export(draft)
            draft.rename(place)
        except BaseException:
            shutil.rmtree(draft, ignore_errors=True)
            raise

    def _place(self, version: int) -> Path:
        return self._root / f"version-{version:06d}"
