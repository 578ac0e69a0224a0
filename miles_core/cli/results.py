"""Standard output for a command's results alone."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import IO

from miles_core.cli import output


@contextlib.contextmanager
def results_alone() -> Iterator[None]:
    """What plugins, their libraries and their processes print goes to standard error meanwhile, also what is written
    below Python; only `output` still reaches standard output."""
    stdout = sys.stdout
    own = _writes_to(stdout) == 1 and _writes_to(sys.stderr) == 2  # not while a test or an embedder holds them
    output.flush()
    results: IO[str]
    if own:
        results = os.fdopen(os.dup(1), "w", encoding=stdout.encoding, errors=stdout.errors)
        os.dup2(2, 1)
    else:
        results = stdout
    output.STREAMS.append(results)
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    finally:
        try:
            output.flush()
        finally:
            output.STREAMS.pop()
            if own:
                os.dup2(results.fileno(), 1)
                results.close()


def _writes_to(stream: object) -> int:
    """The descriptor that a stream writes to; -1 when it has none."""
    try:
        return int(stream.fileno())  # type: ignore[attr-defined]
    except (AttributeError, OSError, ValueError):
        return -1
