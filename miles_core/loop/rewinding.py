"""Forgetting what a run put on record after a checkpoint, since it will be made again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from miles_core.errors import RequestError
from miles_core.loop.due import read_pending
from miles_core.loop.filing import ended_since, read_evaluations
from miles_core.observe import faults, jsonl
from miles_core.observe.folder import RunFolder
from miles_core.observe.trajectories import discard_from

if TYPE_CHECKING:
    from miles_core.loop.checkpoint import Saved
    from miles_core.loop.record import Recorder

KEPT = ("run_started", *faults.KEPT)
"""Events that stay on record: they happened, whatever is made again."""

NOTHING = -1
"""As a step to keep trajectories up to: none of them."""


def forget_after(folder: RunFolder, saved: Saved | None) -> None:
    """Bring the run's files back to where the checkpoint was, None: to the beginning. Faults stay on record, and
    evaluations that had begun before it and have ended since. Raises RequestError when a file is missing."""
    state: dict[str, Any] = {} if saved is None else dict(saved.state)
    for path, key in ((folder.metrics, "metrics_position"), (folder.events, "events_position")):
        if not path.is_file():
            raise RequestError("is missing, so the run cannot be resumed", where=str(path))
        position = state[key] if saved is not None else jsonl.beginning(path)
        kept = _kept(folder, position, saved) if path == folder.events else []
        lines = jsonl.JsonLines(path)
        lines.truncate(position)
        for event in kept:
            lines.append(event)
        lines.close()
    discard_from(folder.trajectories, NOTHING if saved is None else saved.step)


def begin_anew(folder: RunFolder) -> bool:
    """`forget_after` to the beginning, of a run that may have ended before it had files. Whether it had any."""
    begun = folder.events.exists()
    for path in (folder.metrics, folder.events):
        jsonl.JsonLines(path).close()
    forget_after(folder, None)
    return begun


def rewind(folder: RunFolder, recorder: Recorder, saved: Saved | None) -> None:
    """`forget_after` in a run that goes on: its recorder forgets as well."""
    forget_after(folder, saved)
    recorder.forget(read_evaluations(jsonl.read(folder.events)))


def _kept(folder: RunFolder, position: int, saved: Saved | None) -> list[dict[str, Any]]:
    begun = set() if saved is None else {(pending.name, pending.step) for pending in read_pending(saved.state)}
    ended = ended_since(folder.events, begun) if begun else []
    after = jsonl.read(folder.events, start=position)
    return [event for event in after if event["event"] in KEPT or event in ended]
