"""The trajectories of sessions that nobody trains on, as files that `rollout: {use: saved}` and an audit read."""

from __future__ import annotations

import itertools
import logging
from pathlib import Path

from miles_core.errors import RequestError
from miles_core.observe.trajectories import write_groups
from miles_core.session.session import Session
from miles_core.types.task import Task
from miles_core.types.trajectory import Disposition, Group, Status, Trajectory

log = logging.getLogger(__name__)


class Traces:
    """One file in `folder` for each session that ends with something sampled. `server` tells the files of one server
    from those of another in the same folder."""

    def __init__(self, folder: Path, server: str) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RequestError(f"traces cannot be kept: {error.strerror or error}", where=str(folder)) from error
        self._folder = folder
        self._server = server
        self._numbers = itertools.count()

    def keep(self, session: Session, why: str) -> None:
        """Write what was sampled in the session. A disk that is full loses the trace, which the log says, and nothing
        else."""
        collected = session.collect()
        if not collected.sequences:
            return
        first = session.conversation.tree.nodes[0]
        number = next(self._numbers)
        trajectory = Trajectory(
            id=session.id,
            task_id=session.id,
            index=0,
            sequences=collected.sequences,
            status=Status.TRUNCATED if collected.truncated else Status.COMPLETED,
            text=collected.text,
            metadata={"session": dict(collected.facts), "ended": why, **session.metadata},
        )
        group = Group(Task(session.id, first.added), number, 0, (trajectory,))
        try:
            write_groups(
                self._folder, f"{self._server}-{number:06d}", [(group, {session.id: Disposition.BUFFERED})], step=None
            )
        except Exception:
            log.exception("the trace of session %s was not written", session.id)
