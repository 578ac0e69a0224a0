"""What a command and the driver that it has started in a worker say to each other."""

from __future__ import annotations

import traceback
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import miles_core
from miles_core.contracts.component import ComponentRef
from miles_core.runtime.component_server import portable

NAME = "driver"
"""Of the worker, and of its log."""

Event = tuple[str, Mapping[str, Any]]
"""What a view is told: the name of an event and its facts."""


def hosted_driver() -> ComponentRef:
    """What a worker that is to be the driver builds. It is the core's own, of the same version everywhere."""
    return ComponentRef(
        kind="driver",
        name=NAME,
        factory="miles_core.loop.hosted:HostedDriver",
        options_model="miles_core.contracts.options:NoOptions",
        options={},
        distribution="miles-core",
        version=miles_core.__version__,
    )


@dataclass(frozen=True, slots=True)
class Order:
    """What the driver is told.

    folder    the run's folder as the person named it: messages name it so where it is the same folder there
    restarts  the facts of the event `driver_restarted` for each time that this command started a driver again
    strict    whether a failing event hook or tracker ends the run
    trace     the file for hook calls
    """

    folder: Path
    restarts: tuple[Mapping[str, Any], ...] = ()
    strict: bool = False
    trace: Path | None = None


@dataclass(frozen=True, slots=True)
class Ended:
    """How a driver ended that did not die: with a summary, or with an error that it has put on record.

    `notes` are the error's, `trace` is its traceback there.
    """

    summary: Mapping[str, Any] | None = None
    error: Exception | None = None
    notes: tuple[str, ...] = ()
    trace: str = ""

    @classmethod
    def by(cls, error: BaseException) -> Ended:
        """As it travels. A KeyboardInterrupt is told by there being neither summary nor error."""
        notes = tuple(getattr(error, "__notes__", ()))
        if isinstance(error, KeyboardInterrupt):
            return cls(notes=notes)
        told = portable(error)
        assert isinstance(told, Exception)
        return cls(error=told, notes=notes, trace="".join(traceback.format_exception(error)))

    def result(self) -> Mapping[str, Any]:
        """The summary. Raises what ended the driver, as it would be raised here."""
        if self.summary is not None:
            return self.summary
        error: BaseException = self.error or KeyboardInterrupt()
        if self.error is None:
            for note in self.notes:
                error.add_note(note)
        raise error from (_Elsewhere(self.trace) if self.trace else None)


class _Elsewhere(Exception):
    """The traceback of another process, printed as a cause."""

    def __str__(self) -> str:
        return f"\n{self.args[0]}"
