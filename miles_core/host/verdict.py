"""What was decided about one plugin, and why: who enabled or blocked it, and what lost against that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from miles_core.errors import Problem
from miles_core.host.request import (
    BLOCKS,
    COMMAND_LINE,
    ENVIRONMENT,
    LEAVES_OUT,
    LEVELS,
    NO_PLUGINS,
    PROJECT,
    VARIABLE,
    Wish,
)
from miles_core.host.scan import InstalledPlugin

ENABLED, DISABLED, CONFLICT, UNKNOWN = "enabled", "disabled", "conflict", "unknown"
INSTALLED = "installed"
"""The status of a plugin that no source mentions. Admission adds `incompatible` and `blocked` (`host.admit`)."""


@dataclass(frozen=True, slots=True)
class Reason:
    """What one source says of the plugin: `says` is enables, blocks or leaves out; `won` whether it counted."""

    source: str
    where: str
    says: str
    won: bool

    def to_json(self) -> dict[str, Any]:
        return {"source": self.source, "where": self.where, "says": self.says, "won": self.won}


@dataclass(frozen=True, slots=True)
class Verdict:
    """The decision about one plugin; `plugin` is None when nothing of the name is installed.

    status    enabled, disabled, incompatible, blocked, conflict or unknown
    reasons   the one that won first, then the others from strong to weak
    problems  why it may not be imported although it was asked for
    """

    name: str
    plugin: InstalledPlugin | None
    status: str
    reasons: tuple[Reason, ...]
    problems: tuple[Problem, ...] = ()

    @property
    def by(self) -> Reason | None:
        """The reason that won."""
        return next((reason for reason in self.reasons if reason.won), None)

    @property
    def off_because(self) -> str:
        """The clause of a message about a plugin that is off: `--plugin no:x blocks`, `miles.toml:3 disables`."""
        if self.by is None:
            return ""
        says = "disables" if self.by.source == PROJECT and self.by.says == BLOCKS else self.by.says
        return f"{self.by.where} {says}"

    @property
    def way_back(self) -> str:
        """How to get a plugin that is off."""
        reason, name = self.by, self.name
        if reason is None:
            return ""
        if reason.where == NO_PLUGINS:
            return f"run without {NO_PLUGINS}"
        if reason.source == COMMAND_LINE:
            return f"leave out {reason.where}"
        if reason.says == LEAVES_OUT:
            return f"add {name} to {VARIABLE} or unset it, or run with --plugin {name}"
        if reason.source == ENVIRONMENT:
            return f"take it out of {VARIABLE}, or run with --plugin {name}"
        if reason.source == PROJECT:
            return f"miles plugins enable {name}, or for once --plugin {name}"
        return f"take no:{name} out of the recipe, or run with --plugin {name}"

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "distribution": self.plugin.distribution if self.plugin else None,
            "version": self.plugin.version if self.plugin else None,
            "status": self.status,
            "reasons": [reason.to_json() for reason in self.reasons],
            "problems": [problem.to_json() for problem in self.problems],
        }


def reasons_of(wishes: Sequence[Wish], ruling: Wish | None) -> tuple[Reason, ...]:
    """Wishes as reasons, from strong to weak. Everyone who agrees with the ruling is kept, but only it has won."""
    ordered = sorted(wishes, key=lambda wish: (wish is not ruling, LEVELS.index(wish.level)))
    return tuple(Reason(wish.level, wish.where, wish.says, wish is ruling) for wish in ordered)
