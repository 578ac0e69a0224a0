"""Append-only JSON lines: `metrics.jsonl` and `events.jsonl`.

The first line is a header, `{"format": "miles.metrics", "version": 1}`, whose format is named after the file. Each
record is one line, handed to the operating system before `append` returns, so that a killed process loses at most the
line that it was writing. Such a torn last line is dropped, with a warning, by whoever opens the file next.
"""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from miles_core.errors import RequestError, RunError
from miles_core.observe.atomic import refusals, write_error

VERSION = 1


class JsonLines:
    """An open file of JSON lines. Opening creates it with its header, or drops a torn last line of what is there."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with refusals(path):
            self._file = path.open("ab", buffering=0)
            content = path.read_bytes()
        whole = content.rfind(b"\n") + 1
        if whole < len(content):
            _warn_torn(path)
            self.truncate(whole)
        if whole:
            _check_header(path, content[:whole].split(b"\n", 1)[0])
        else:
            self._write(_line({"format": _format(path), "version": VERSION}, path))

    def append(self, record: Mapping[str, Any]) -> None:
        """Add one record. Raises RunError when a number in it is not finite, a value is not JSON, or the disk is full:
        the file then holds what it held before."""
        self._write(_line(record, self.path))

    def position(self) -> int:
        """The length of the file in bytes: what `truncate` takes to come back here."""
        return os.fstat(self._file.fileno()).st_size

    def truncate(self, position: int) -> None:
        """Forget every record after `position`. Raises RequestError when the file is shorter than that."""
        if position > self.position():
            raise RequestError(
                f"is {self.position()} bytes long, shorter than the {position} that the checkpoint recorded",
                where=str(self.path),
                mend="resume from an earlier checkpoint, or start a new run",
            )
        with refusals(self.path):
            os.ftruncate(self._file.fileno(), position)

    def close(self) -> None:
        self._file.close()

    def _write(self, line: bytes) -> None:
        start = self.position()
        rest = memoryview(line)
        try:
            while rest:
                rest = rest[os.write(self._file.fileno(), rest) :]
        except OSError as error:
            os.ftruncate(self._file.fileno(), start)  # half a line would be worse than none
            raise write_error(self.path, error) from error


def beginning(path: Path) -> int:
    """The position behind the header: what `truncate` takes to forget every record."""
    return path.read_bytes().find(b"\n") + 1


def read(path: Path, start: int = 0) -> list[dict[str, Any]]:
    """Every record of the file from the position `start` on, without the header. A torn last line is dropped with a
    warning.

    Raises RequestError when the file is missing, of another format or version, or damaged before its last line.
    """
    try:
        content = path.read_bytes()
    except OSError as error:
        raise RequestError(f"could not be read: {error.strerror}", where=str(path)) from error
    lines = content.split(b"\n")
    if lines.pop():
        _warn_torn(path)
    if not lines:
        return []
    _check_header(path, lines[0])
    passed = content.count(b"\n", 0, start) or 1
    return [_parse(path, number, line) for number, line in enumerate(lines[passed:], start=passed + 1)]


def _format(path: Path) -> str:
    return f"miles.{path.stem}"


def _line(record: Mapping[str, Any], path: Path) -> bytes:
    try:
        return json.dumps(record, allow_nan=False, separators=(", ", ": ")).encode() + b"\n"
    except (TypeError, ValueError) as error:
        bad = [name for name, value in record.items() if not _is_json(value)]
        raise RunError(
            f"a record's {', '.join(map(repr, bad)) or 'key'} is not finite JSON data: {error}", where=str(path)
        ) from error


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return False
    return True


def _check_header(path: Path, line: bytes) -> None:
    header = _parse(path, 1, line)
    if (header.get("format"), header.get("version")) != (_format(path), VERSION):
        raise RequestError(
            f"has the header {header}, expected format {_format(path)!r} in version {VERSION}",
            where=f"{path}:1",
            mend="open it with the version of miles-core that wrote it",
        )


def _parse(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        record = json.loads(line)
    except ValueError as error:
        raise RequestError(f"is not JSON: {error}", where=f"{path}:{number}", mend="the file is damaged") from error
    if not isinstance(record, dict):
        raise RequestError(f"is {type(record).__name__}, expected an object", where=f"{path}:{number}")
    return record


def _warn_torn(path: Path) -> None:
    warnings.warn(f"{path}: the last line was torn when the process that wrote it ended, and is dropped", stacklevel=3)
