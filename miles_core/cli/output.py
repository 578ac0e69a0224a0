"""What commands print: results on standard output, JSON only where JSON was asked for; all else on standard error.

Imports little: the fast path of `miles plugins list` goes through here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import IO

STREAMS: list[IO[str]] = []
"""Where results go while `results_alone` keeps everything else off standard output; the last one counts."""


def _results() -> IO[str]:
    return STREAMS[-1] if STREAMS else sys.stdout


def say(text: str) -> None:
    """A line of result."""
    try:
        _results().write(text + "\n")
    except BrokenPipeError:
        leave_closed_pipe()


def say_json(value: object) -> None:
    """The result as JSON, alone on standard output. NaN would not be JSON and is refused."""
    import json

    say(json.dumps(value, indent=2, allow_nan=False))


def remark(text: str) -> None:
    """A line beside the result: progress, warnings, errors."""
    sys.stderr.write(text + "\n")


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Columns as wide as their content; the last one is left as it is."""
    lines = [head, *rows]
    widths = [max(len(line[column]) for line in lines) for column in range(len(head) - 1)]
    for line in lines:
        padded = [cell.ljust(width) for cell, width in zip(line, widths, strict=False)]
        say("  ".join([*padded, line[-1]]).rstrip())


def flush() -> None:
    """Hand everything to whoever reads it, before the exit code says that it was done."""
    try:
        _results().flush()
    except BrokenPipeError:
        leave_closed_pipe()


def leave_closed_pipe() -> None:
    """The reader went away (`miles runs list | head`): end quietly, but not as done."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), _results().fileno())
    raise SystemExit(1)
