"""A run's folder: what lies where, who holds it, and how the run stands.

runs/<name>-<id>/
    recipe.yaml    the resolved recipe          trajectories/  what was sampled, Parquet, one file a step
    plugins.lock   the plugin set               checkpoints/   what `miles resume` continues from
    metrics.jsonl  one record a step            logs/          what the worker processes printed
    events.jsonl   what happened, in order      report.html    the report
    run.json       how the run stands
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from miles_core.errors import RequestError, RunError
from miles_core.observe.atomic import replacing

STATES = ("running", "done", "failed", "interrupted")
FORMAT = "miles.run"
VERSION = 1

_FIELDS: dict[str, Callable[[Any], bool]] = {
    "name": lambda value: isinstance(value, str),
    "started": lambda value: isinstance(value, str),
    "steps": lambda value: isinstance(value, int),
    "steps_done": lambda value: isinstance(value, int),
    "last_metrics": lambda value: isinstance(value, dict) and all(isinstance(v, int | float) for v in value.values()),
    "plugins": lambda value: isinstance(value, list) and all(isinstance(v, dict) for v in value),
    "faults": lambda value: isinstance(value, dict) and all(isinstance(v, int) for v in value.values()),
    "evaluations": lambda value: isinstance(value, dict) and all(isinstance(v, dict) for v in value.values()),
}
"""What the fields of run.json are, where they are there."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_CLAIM_PATIENCE = 0.5  # seconds: whoever looks whether a run is alive holds its lock for an instant

_DRIVER_PATIENCE = 15.0  # seconds: a driver in a worker ends itself when its command is gone


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The folder of one run. Constructing it touches nothing."""

    path: Path

    @classmethod
    def create(cls, root: Path, name: str) -> RunFolder:
        """Make `root/<name>-<id>/`, where the id is the UTC time and a random suffix; whole or not at all.

        Raises RequestError when the name cannot be a folder's name or the folder cannot be made.
        """
        if not _NAME.fullmatch(name):
            raise RequestError(
                f"the run's name is {name!r}",
                mend="use letters, digits, '.', '_' and '-', beginning with a letter or digit",
            )
        started = datetime.now(UTC)
        path = root / f"{name}-{started:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}"
        draft = root / f".{path.name}.tmp"
        try:
            draft.mkdir(parents=True)
            folder = cls(draft)
            for part in (folder.trajectories, folder.checkpoints, folder.logs):
                part.mkdir()
            folder.write_status(name=name, started=started.isoformat(timespec="seconds"), state="running")
            draft.rename(path)
        except (OSError, RunError) as error:
            shutil.rmtree(draft, ignore_errors=True)
            raise RequestError(
                f"the run's folder could not be made: {getattr(error, 'strerror', '') or error}",
                where=str(path),
                mend="choose another place with --runs-dir, or another name with --name",
            ) from error
        return cls(path)

    @classmethod
    def at(cls, path: Path) -> RunFolder:
        """The folder at `path`, whatever is there."""
        return cls(path)

    @classmethod
    def open(cls, path: Path) -> RunFolder:
        """The folder of a run that exists. Raises RequestError when `path` is not one."""
        folder = cls(path)
        folder.read_status()
        return folder

    @property
    def recipe(self) -> Path:
        return self.path / "recipe.yaml"

    @property
    def lock(self) -> Path:
        """plugins.lock: the plugin set. Who works in the folder is asked by `claimed` and `holder`."""
        return self.path / "plugins.lock"

    @property
    def metrics(self) -> Path:
        return self.path / "metrics.jsonl"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def trajectories(self) -> Path:
        return self.path / "trajectories"

    @property
    def ledger(self) -> Path:
        return self.path / "ledger.bin"

    @property
    def digests(self) -> Path:
        """SHA-256 of each file of trajectories, as it was written."""
        return self.trajectories / "digests.jsonl"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def logs(self) -> Path:
        return self.path / "logs"

    @property
    def report(self) -> Path:
        return self.path / "report.html"

    @property
    def status(self) -> Path:
        return self.path / "run.json"

    @property
    def _claim(self) -> Path:
        return self.path / ".claim"

    @property
    def _driving(self) -> Path:
        return self.path / ".driver"

    @contextmanager
    def claimed(self) -> Iterator[None]:
        """Hold the folder for this process. Raises RequestError naming the holder's process id when it is held, or when
        a driver in a worker, whose command is gone, takes long to end.

        The operating system lets go of the lock when the process ends, however it ends.
        """
        with _locked(self._claim, _CLAIM_PATIENCE):
            if self._driving.exists():
                with _locked(self._driving, _DRIVER_PATIENCE):
                    pass
            yield

    @contextmanager
    def driven(self) -> Iterator[None]:
        """Be the driver that writes in the folder, on behalf of the process that holds it. Raises RequestError when
        another one still does."""
        with _locked(self._driving, _DRIVER_PATIENCE):
            yield

    def holder(self) -> int | None:
        """The process id that holds the folder; None when nobody does."""
        return _holder(self._claim)

    def driver(self) -> int | None:
        """The process id, on its machine, of the driver that works in a worker of the runtime; None without one."""
        return _holder(self._driving)

    def write_status(self, **facts: Any) -> None:
        """Merge `facts` into run.json, atomically. `state` is one of STATES. docs/formats.md lists the facts.

        Raises RunError when the file cannot be written.
        """
        if (state := facts.get("state", "running")) not in STATES:
            raise ValueError(f"state is {state!r}, expected one of {', '.join(STATES)}")
        known = _read_json(self.status) if self.status.exists() else {}
        now = datetime.now(UTC).isoformat(timespec="seconds")
        status = {"format": FORMAT, "version": VERSION, **known, "updated": now, **facts}
        with replacing(self.status) as draft:
            draft.write_text(json.dumps(status, indent=1, allow_nan=False) + "\n")

    def read_status(self) -> dict[str, Any]:
        """run.json, except that a run which says `running` while no process holds it is `dead`.

        Raises RequestError when the folder is not a run's, or is of a newer format.
        """
        if not self.status.is_file():
            raise RequestError(
                "is not the folder of a run: it has no run.json", where=str(self.path), mend="see `miles runs list`"
            )
        status = _read_json(self.status)
        if (status.get("format"), status.get("version")) != (FORMAT, VERSION):
            raise RequestError(
                f"is of format {status.get('format')!r} version {status.get('version')!r}, "
                f"expected {FORMAT!r} version {VERSION}",
                where=str(self.status),
                mend="open it with the version of miles-core that wrote it",
            )
        if damaged := [name for name, fits in _FIELDS.items() if name in status and not fits(status[name])]:
            raise RequestError(f"is damaged: {', '.join(damaged)}", where=str(self.status))
        if status.get("state") not in STATES:
            raise RequestError(f"is damaged: state is {status.get('state')!r}", where=str(self.status))
        if status.get("state") == "running" and self.holder() is None:
            status["state"] = "dead"
        return status


@contextmanager
def _locked(file: Path, patience: float) -> Iterator[None]:
    """Hold the lock of `file`, and have this process's id in it."""
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        raise RequestError(f"cannot be written: {error.strerror}", where=str(file.parent)) from error
    try:
        _lock_or_refuse(descriptor, file.parent, patience)
        os.ftruncate(descriptor, 0)
        os.pwrite(descriptor, str(os.getpid()).encode(), 0)
        yield
    finally:
        os.close(descriptor)


def _lock_or_refuse(descriptor: int, folder: Path, patience: float) -> None:
    deadline = time.monotonic() + patience
    while not _try_lock(descriptor, fcntl.LOCK_EX):
        if time.monotonic() > deadline:
            raise RequestError(
                f"another process works in this run's folder (process id {_written_pid(descriptor)})",
                where=str(folder),
                mend="wait for it, or end it, or start a new run",
            )
        time.sleep(0.05)


def _holder(file: Path) -> int | None:
    try:
        descriptor = os.open(file, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return None if _try_lock(descriptor, fcntl.LOCK_SH) else _written_pid(descriptor)
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int, how: int) -> bool:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise
    return True


def _written_pid(descriptor: int) -> int:
    """The holder's process id, or 0 in the instant between its locking and its signing."""
    return int(os.pread(descriptor, 32, 0) or b"0")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RequestError(f"could not be read: {error}", where=str(path), mend="the file is damaged") from error
    if not isinstance(found, dict):
        raise RequestError(f"is {type(found).__name__}, expected an object", where=str(path))
    return found
