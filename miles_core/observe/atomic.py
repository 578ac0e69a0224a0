"""Files that are either wholly there or not at all, and what a full disk is called."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from miles_core.errors import RunError


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path beside `path` to write to; it takes `path`'s place when the block ends without an error.

    The content is on disk before the name is: a crash leaves the old file or the new one. Raises RunError naming the
    file when it cannot be written, and leaves nothing behind.
    """
    draft = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with refusals(path):
            yield draft
            with draft.open("rb") as file:
                os.fsync(file.fileno())
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """Turn the operating system's refusal to write `path` into a RunError that says what to do."""
    try:
        yield
    except OSError as error:
        raise write_error(path, error) from error


def write_error(path: Path, error: OSError) -> RunError:
    """What a person is told when `path` could not be written."""
    return RunError(
        f"could not be written: {error.strerror or error}",
        where=str(path),
        mend="free space on that disk, or check the folder's permissions, then `miles resume` the run",
    )
