"""A program beside the run: one process group, ended as a whole, with its output in files."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shlex
import signal
import sys
from collections.abc import Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass
from pathlib import Path

from miles_core.contracts.last_words import last_words
from miles_core.loop import leash

LAST_BYTES = 1 << 20
"""How much of the end of its output is looked at."""

TERM_SECONDS = 2.0
"""What a program that is told to end gets for cleaning up, before its group is killed."""


@dataclass(frozen=True, slots=True)
class Ended:
    """How it ended: `code` is negative for a signal. `said` and `complained` are the ends of its output and its errors,
    which were `complaints` bytes."""

    program: str
    code: int
    said: str
    complained: str
    complaints: int

    def why(self) -> str:
        """In words, with the last lines of its errors."""
        how = f"was ended by {signal.Signals(-self.code).name}" if self.code < 0 else f"exited with {self.code}"
        last = last_words(self.complained, self.complaints)
        return f"`{self.program}` {how}{f': {last}' if last else ''}"


async def run_program(
    program: Several[str], scratch: Path, *, environment: Mapping[str, str], folder: Path | None = None
) -> Ended:
    """Run it to its end. When cancelled, it and all that it started get SIGTERM, then SIGKILL; the same when this
    process is killed. What it started and left behind is killed in any case. Files instead of pipes: nobody waits for
    what its descendants keep open."""
    theirs, ours = os.pipe()
    try:
        with (scratch / "stdout").open("wb") as out, (scratch / "stderr").open("wb") as err:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", leash.__file__, str(theirs), *program),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                cwd=folder,
                env={**os.environ, **environment},
                start_new_session=True,
                pass_fds=[theirs],
            )
        await _until_ended(process)
    finally:
        os.close(theirs)
        os.close(ours)
    code = process.returncode if process.returncode is not None else 0
    said, complained = (_end_of(scratch / name) for name in ("stdout", "stderr"))
    return Ended(shlex.join(program), code, said, complained, (scratch / "stderr").stat().st_size)


async def _until_ended(process: asyncio.subprocess.Process) -> None:
    try:
        await process.wait()
    except asyncio.CancelledError:
        _signal(process, signal.SIGTERM)
        await asyncio.wait({asyncio.ensure_future(process.wait())}, timeout=TERM_SECONDS)
        raise
    finally:
        _signal(process, signal.SIGKILL)
        await process.wait()


def _signal(process: asyncio.subprocess.Process, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _end_of(file: Path) -> str:
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - LAST_BYTES))
        return stream.read().decode(errors="replace")
