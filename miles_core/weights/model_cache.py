"""Model folders that are made once: built beside their place, checksummed, renamed into it.

A model family's plugin converts a download into a Hugging Face directory. Whatever happens meanwhile - a kill, a full
disk, a second process that wants the same model - a folder is either absent or complete. The folder's manifest lists
the size and sha256 of each file: sizes are compared at every use, contents when asked.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from miles_core.errors import RequestError

MANIFEST = "miles-manifest.json"
_CHUNK = 1 << 22


def cache_root() -> Path:
    """Where models are kept: $MILES_CACHE, else $XDG_CACHE_HOME/miles, else ~/.cache/miles."""
    if own := os.environ.get("MILES_CACHE"):
        return Path(own).expanduser()
    if shared := os.environ.get("XDG_CACHE_HOME"):
        return Path(shared).expanduser() / "miles"
    return Path.home() / ".cache" / "miles"


def make_once(folder: Path, make: Callable[[Path], None], *, what: str) -> Path:
    """`folder`, made by `make(empty temporary folder)` when it is not there yet.

    Several processes may call this at once: one makes it, the others wait. When `make` raises, nothing is left behind.
    Raises RequestError when the place cannot be written, the disk is full, or the folder that is there is not what its
    manifest says; and whatever `make` raises.
    """
    if folder.is_dir():
        check_made(folder)
        return folder
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        with _alone(folder, what):
            if folder.is_dir():  # another process made it while this one waited
                check_made(folder)
                return folder
            _make(folder, make)
    except OSError as error:
        raise RequestError(
            f"{what} cannot be written: {error.strerror or error}",
            where=str(folder),
            mend="make room or set MILES_CACHE to a folder that can be written",
        ) from error
    return folder


def check_made(folder: Path, *, contents: bool = False) -> None:
    """Compare a made folder with its manifest: presence and size of each file, with `contents` sha256 too.

    Raises RequestError that lists every file that differs.
    """
    try:
        listed: dict[str, dict[str, Any]] = json.loads((folder / MANIFEST).read_text())["files"]
        wrong = [fault for name, facts in listed.items() if (fault := _fault(folder / name, facts, contents))]
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        wrong = [f"{MANIFEST} cannot be read ({type(error).__name__}: {error})"]
    if wrong:
        raise RequestError(
            "a cached model is damaged: " + "; ".join(wrong),
            where=str(folder),
            mend="delete this folder and run again: it is made anew",
        )


def _fault(path: Path, facts: dict[str, Any], contents: bool) -> str:
    if not path.is_file():
        return f"{path.name} is missing"
    size = path.stat().st_size
    if size != facts["bytes"]:
        return f"{path.name} has {size} bytes, expected {facts['bytes']}"
    if contents and _sha256(path) != facts["sha256"]:
        return f"{path.name} has another sha256 than the manifest says"
    return ""


def _make(folder: Path, make: Callable[[Path], None]) -> None:
    for leftover in folder.parent.glob(f".{folder.name}.*.tmp"):  # of a killed process: whoever holds the lock is alone
        shutil.rmtree(leftover)
    temporary = folder.with_name(f".{folder.name}.{os.getpid()}.tmp")
    temporary.mkdir()
    try:
        make(temporary)
        _write_manifest(temporary)
        temporary.rename(folder)
    finally:
        if temporary.exists():
            shutil.rmtree(temporary)


def _write_manifest(folder: Path) -> None:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    files = {str(p.relative_to(folder)): {"bytes": p.stat().st_size, "sha256": _sha256(p)} for p in paths}
    manifest = folder / MANIFEST
    manifest.write_text(json.dumps({"format": 1, "files": files}, indent=1) + "\n")
    for path in (*paths, manifest):  # on disk before the rename is, or a power cut leaves a folder of empty files
        with path.open("rb") as stream:
            os.fsync(stream.fileno())


def _sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while chunk := stream.read(_CHUNK):
            digest.update(chunk)
    return digest.hexdigest()


@contextmanager
def _alone(folder: Path, what: str) -> Iterator[None]:
    """Hold the folder's lock file. The operating system releases it when the holder dies, however it dies."""
    with folder.with_name(f".{folder.name}.lock").open("w") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{what}: waiting for another process that makes it", file=sys.stderr, flush=True)
            fcntl.flock(stream, fcntl.LOCK_EX)
        yield
