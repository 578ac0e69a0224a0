"""Work that could hurt this process, done in a fresh interpreter: import probes, unpickling, what may call os._exit."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from miles_core.testing.kit.check import fail

PROCESS_SECONDS = 50.0


_environment = dict(os.environ)


def keep_environment() -> None:
    """Give fresh interpreters the environment variables of this moment: importing a plugin here may change them."""
    _environment.clear()
    _environment.update(os.environ)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a fresh interpreter ended. `status` is negative for a signal."""

    status: int
    output: str
    errors: str

    @property
    def last_words(self) -> str:
        """The end of what it printed on standard error, on one line."""
        lines = [line.strip() for line in self.errors.strip().splitlines() if line.strip()]
        return " / ".join(lines[-3:])[-400:]


def python(
    code: str, *arguments: str, seconds: float = PROCESS_SECONDS, stdin: bytes = b"", folder: Path | None = None
) -> Ended:
    """Run `code` in a fresh interpreter that can import what this one can, in `folder` or an empty one of its own."""
    path = os.pathsep.join(str(Path(entry).absolute()) for entry in sys.path if entry)
    environment = {**_environment, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    with tempfile.TemporaryDirectory(prefix="miles-kit-") as empty:
        try:
            done = subprocess.run(
                [sys.executable, "-c", code, *arguments],
                input=stdin,
                capture_output=True,
                timeout=seconds,
                env=environment,
                cwd=folder or empty,
                check=False,
            )
        except subprocess.TimeoutExpired:
            fail(f"it did not end within {seconds:g} s in a process of its own", "find what waits, and bound it")
    return Ended(done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace"))
