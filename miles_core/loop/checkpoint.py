"""Checkpoints: all that a run needs to go on as if it had never stopped.

`checkpoints/step-000012/` holds `state.json` (the driver's part), groups that waited in a buffer or were discarded
since the last step (Parquet), and `trainer/` (the trainer's own). It is written beside its place and renamed into
it when it is complete and on disk: what is there is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from miles_core.contracts.rollout import Discard
from miles_core.errors import RequestError, RunError
from miles_core.loop.record import discarded_entries, outcome_of
from miles_core.observe.rows import plain
from miles_core.observe.trajectories import SUFFIX, read_file, write_groups
from miles_core.types.trajectory import Disposition, Group

if TYPE_CHECKING:
    from miles_core.loop.due import Progress
    from miles_core.loop.ring import Ring

FORMAT = "miles.checkpoint"
VERSION = 1
PARTIAL = ".partial"
OWED = "discarded"
"""The file of groups that were discarded and not yet saved with a step."""

FIELDS = {"step": int, "weight_version": int, "phases": list, "metrics_position": int, "events_position": int}
"""The fields of state.json that resuming reads, beside format and recipe."""


@dataclass(frozen=True, slots=True)
class Saved:
    """One checkpoint on disk: batches trained, and the driver's state as it was."""

    folder: Path
    step: int
    state: Mapping[str, Any]

    @property
    def trainer(self) -> Path:
        return self.folder / "trainer"


class Checkpoints:
    """The checkpoints of one run. Keeps the newest `keep` of them."""

    def __init__(
        self, folder: Path, recipe: Mapping[str, Any], *, every: int, keep: int, saved: int | None = None
    ) -> None:
        """`saved` is the step of the checkpoint that a resumed run began from: it is not written again."""
        self._folder = folder
        self._digest = recipe_digest(recipe)
        self._every = every
        self._keep = keep
        self._last_step = saved

    async def save_if_due(self, ring: Ring, progress: Progress) -> None:
        if self._every and progress.step % self._every == 0:
            await self._save(ring, progress)

    async def save_last(self, ring: Ring, progress: Progress) -> None:
        if progress.step != self._last_step:
            await self._save(ring, progress)

    def latest(self) -> Saved | None:
        """The newest complete checkpoint. Raises RequestError when it belongs to another recipe or format."""
        steps = self._complete()
        return self._read(steps[-1]) if steps else None

    def at(self, step: int) -> Saved:
        """The checkpoint after `step` batches. Raises RequestError as `latest` does, and when there is none."""
        there = {int(path.name.removeprefix("step-")): path for path in self._complete()}
        if step not in there:
            have = ", ".join(map(str, there)) or "none"
            raise RequestError(f"there is no checkpoint of step {step}; there are: {have}", where=str(self._folder))
        return self._read(there[step])

    def _complete(self) -> list[Path]:
        return sorted(path for path in self._folder.glob("step-*") if path.suffix != PARTIAL)

    def _read(self, folder: Path) -> Saved:
        try:
            state = json.loads((folder / "state.json").read_text())
        except (OSError, ValueError) as error:
            raise RequestError(f"the checkpoint cannot be read: {error}", where=str(folder)) from error
        if (state.get("format"), state.get("format_version")) != (FORMAT, VERSION):
            raise RequestError(
                f"the checkpoint is of format {state.get('format')!r} version {state.get('format_version')!r}, "
                f"expected {FORMAT!r} version {VERSION}",
                where=str(folder),
            )
        if state["recipe"] != self._digest:
            raise RequestError(
                "the checkpoint belongs to another recipe than the run's recipe.yaml",
                where=str(folder),
                mend="restore recipe.yaml as the run wrote it, or start a new run",
            )
        if damaged := [name for name, kind in FIELDS.items() if not isinstance(state.get(name), kind)]:
            raise RequestError(f"the checkpoint is damaged: {', '.join(damaged)} of state.json", where=str(folder))
        return Saved(folder, state["step"], state)

    async def _save(self, ring: Ring, progress: Progress) -> None:
        place = self._folder / f"step-{progress.step:06d}"
        draft = place.with_name(place.name + PARTIAL)
        with ring.recorder.timed("checkpoint"):
            try:
                shutil.rmtree(draft, ignore_errors=True)
                (draft / "trainer").mkdir(parents=True)
                if ring.trainer is not None:
                    await ring.trainer.save(draft / "trainer")
                self._write_state(draft, ring, progress)
                _sync(draft)
                shutil.rmtree(place, ignore_errors=True)
                draft.rename(place)
            except BaseException as error:
                shutil.rmtree(draft, ignore_errors=True)
                if not isinstance(error, OSError):
                    raise
                raise RunError(
                    f"the checkpoint of step {progress.step} could not be written: {error.strerror or error}",
                    where=str(place),
                    mend="make room; `miles resume` continues from the checkpoint before",
                ) from error
        self._last_step = progress.step
        self._prune()
        ring.recorder.emit("checkpoint_saved", step=progress.step, folder=place)

    def _write_state(self, folder: Path, ring: Ring, progress: Progress) -> None:
        """The driver's part, in one turn of the event loop: whatever rolls out meanwhile is in exactly one place."""
        state = json.dumps(self._state(ring, progress), indent=1, default=plain)
        groups = {_waiting(place): phase.buffer.waiting() for place, phase in enumerate(ring.phases)}
        for phase in ring.phases:
            ring.recorder.owed += phase.buffer.discarded()
        owed = discarded_entries(ring.recorder.owed)
        (folder / "state.json").write_text(state + "\n")
        for stem, waiting in groups.items():
            if waiting:
                entries = [(g, dict.fromkeys((t.id for t in g.trajectories), Disposition.BUFFERED)) for g in waiting]
                write_groups(folder, stem, entries, step=None)
        if owed:
            write_groups(folder, OWED, owed, step=None)

    def _state(self, ring: Ring, progress: Progress) -> dict[str, Any]:
        phases = [
            {
                "data": dict(p.data.state()),
                "rollout": dict(p.rollout.state()),
                "buffer": dict(p.buffer.state()),
                "account": dict(p.account.state()),
                **({"schedule": adapted} if p.adapting and (adapted := p.adapting.state()) else {}),
            }
            for p in ring.phases
        ]
        return {
            "format": FORMAT,
            "format_version": VERSION,
            "recipe": self._digest,
            "step": progress.step,
            "weight_version": progress.version,
            "weights_ahead": progress.ahead,
            "phases": phases,
            "evaluations": [asdict(pending) for pending in progress.pending],
            "metrics_position": ring.recorder.metrics_log.position(),
            "events_position": ring.recorder.events_log.position(),
        }

    def _prune(self) -> None:
        for old in self._complete()[: -self._keep]:
            shutil.rmtree(old)


def restore(ring: Ring, saved: Saved) -> None:
    """Put the driver's own parts back to where the checkpoint was. Raises RequestError when their state is damaged."""
    try:
        for place, (phase, state) in enumerate(zip(ring.phases, saved.state["phases"], strict=True)):
            phase.data.restore(state["data"])
            phase.rollout.restore(state["rollout"])
            phase.buffer.restore(state["buffer"], [group for group, _ in _groups(saved.folder, _waiting(place))])
            phase.account.restore(state["account"])
            if phase.adapting is not None:
                phase.adapting.restore(state.get("schedule", {}), phase.occupancy)
    except (KeyError, TypeError, ValueError) as error:
        what = f"{type(error).__name__}: {error}"
        raise RequestError(f"the checkpoint's state cannot be restored: {what}", where=str(saved.folder)) from error
    ring.recorder.owed = [
        Discard(group, outcome_of(dispositions), "before the checkpoint")
        for group, dispositions in _groups(saved.folder, OWED)
    ]


def _waiting(place: int) -> str:
    """The file of groups that waited in the buffer of a phase."""
    return f"waiting-{place}"


def _groups(folder: Path, stem: str) -> list[tuple[Group, dict[str, Disposition]]]:
    path = folder / f"{stem}{SUFFIX}"
    return list(read_file(path)) if path.exists() else []


def recipe_digest(recipe: Mapping[str, Any]) -> str:
    """A recipe's identity: sha256 of its values in a fixed order."""
    return hashlib.sha256(json.dumps(recipe, sort_keys=True, default=str).encode()).hexdigest()


def _sync(folder: Path) -> None:
    """Ask the system to have every file of the folder on disk before it is renamed."""
    for path in [*folder.rglob("*"), folder]:
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
