"""Every error that Miles shows a person, with the exit code it ends a command with.

An error says what is wrong, where, what was expected and how to mend it. Several faults of one input travel together
as `Problem`s in one error, so that a person mends them in one go.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_BAD_REQUEST = 2
EXIT_PLUGIN = 3
EXIT_INTERRUPTED = 130


@dataclass(frozen=True, slots=True)
class Problem:
    """One fault: `where` is `file:line`, a recipe path or a plugin; `mend` is what the person should do; `trace` is the
    traceback of what a plugin raised, shown to those who ask for tracebacks."""

    what: str
    where: str = ""
    mend: str = ""
    trace: str = field(default="", compare=False, repr=False)

    def __str__(self) -> str:
        lines = [f"{self.where}: {self.what}" if self.where else self.what]
        if self.mend:
            lines.append(f"  mend: {self.mend}")
        return "\n".join(lines)

    def to_json(self) -> dict[str, str]:
        return {"what": self.what, "where": self.where, "mend": self.mend}


class MilesError(Exception):
    """The root of all errors that a command prints without a traceback. `exit_code` is the command's; `origin` is the
    traceback of the process that raised it, as text, when that was another one."""

    exit_code = EXIT_FAILED
    origin = ""

    def __init__(self, what: str | Sequence[Problem], *, where: str = "", mend: str = "") -> None:
        self.problems: tuple[Problem, ...] = (Problem(what, where, mend),) if isinstance(what, str) else tuple(what)
        super().__init__("\n".join(str(problem) for problem in self.problems))

    def __reduce__(self) -> tuple[type[MilesError], tuple[tuple[Problem, ...]], dict[str, Any]]:
        notes = {"__notes__": self.__notes__} if hasattr(self, "__notes__") else {}
        return (type(self), (self.problems,), {"origin": self.origin, **notes})


class RequestError(MilesError):
    """The request was wrong: unknown name, not installed, not enabled, bad recipe, bad data file. Exit code 2."""

    exit_code = EXIT_BAD_REQUEST


class PluginError(MilesError):
    """A plugin is broken, incompatible or in conflict. Exit code 3."""

    exit_code = EXIT_PLUGIN


class MilesDeprecationWarning(FutureWarning):
    """A plugin uses a hook or an argument that goes away: says what to use instead and when it is removed. Shown by
    default, like every FutureWarning, since whoever reads it can tell the author."""


class RunError(MilesError):
    """The work itself failed: a worker died, a disk filled, a number became NaN. Exit code 1."""

    exit_code = EXIT_FAILED


class WorkerDied(RunError):
    """A child process that hosts an engine or a trainer ended while it was needed."""


class PublicationError(RunError):
    """New weights did not reach every engine. No engine generates with weights of an unknown version."""


class ValidationError(MilesError, ValueError):
    """A value that travels (trajectory, sequence, score) contradicts itself. Names the field. Exit code 1."""
