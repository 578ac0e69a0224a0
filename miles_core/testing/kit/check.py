"""One check: a promise in one sentence, the function that tries it, and what came of it."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NoReturn


class Grade(StrEnum):
    """How well a plugin keeps the contract.

    BRONZE  it loads, is named and declared honestly, and costs nothing to those who do not use it
    SILVER  its components can be configured, built, pickled into workers, and have the methods of their contracts
    GOLD    its components behave as their contracts say, also when things go wrong; it has tests, README and licence
    """

    BRONZE = "bronze"
    SILVER = "silver"
    GOLD = "gold"


class CheckResult(StrEnum):
    """SKIPPED: it could not be tried here, and the finding says why; a grade cannot rest on it.
    INAPPLICABLE: the promise says nothing about this component; it does not count."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    INAPPLICABLE = "inapplicable"


@dataclass(frozen=True, slots=True)
class Check:
    """A promise. `kind` is "" for promises of the plugin as a whole and `EVERY_KIND` for those of every component.
    `run` is called with a `PluginSubject` or a `ComponentSubject` and raises `CheckFailed`, `CheckSkipped` or
    `CheckInapplicable`. `reduced`: it tries the component on a reduced model only. `gate`: when a component fails it,
    the later checks of its kind are not tried, since they would say the same again, or pass for no good reason."""

    id: str
    kind: str
    grade: Grade
    promise: str
    run: Callable[[Any], Awaitable[None] | None]
    reduced: bool = False
    gate: bool = False


@dataclass(frozen=True, slots=True)
class Finding:
    """What came of one check. `component` is `kind.name`, "" for the plugin as a whole; `mend` says what to change."""

    check: Check
    component: str
    result: CheckResult
    detail: str = ""
    mend: str = ""
    seconds: float = 0.0


class CheckFailed(Exception):
    """The promise is not kept: what was seen, and what to change."""

    def __init__(self, detail: str, mend: str) -> None:
        super().__init__(detail)
        self.detail = detail
        self.mend = mend


class CheckSkipped(Exception):
    """The promise cannot be tried here: why."""


class CheckInapplicable(Exception):
    """The promise says nothing about this component: why."""


EVERY_KIND = "component"

CHECKS: list[Check] = []
"""Every check of the modules that were imported, in the order of their definition."""


def check(
    kind: str, grade: Grade, promise: str, *, reduced: bool = False, gate: bool = False
) -> Callable[[Callable[[Any], Awaitable[None] | None]], Callable[[Any], Awaitable[None] | None]]:
    """Register the decorated function as a check. Its id is `kind/function-name` (`plugin/…` when `kind` is "")."""

    def register(function: Callable[[Any], Awaitable[None] | None]) -> Callable[[Any], Awaitable[None] | None]:
        name = function.__name__.replace("_", "-")
        CHECKS.append(Check(f"{kind or 'plugin'}/{name}", kind, grade, promise, function, reduced, gate))
        return function

    return register


def fail(detail: str, mend: str) -> NoReturn:
    """End a check: the promise is not kept."""
    raise CheckFailed(detail, mend)


def expect(condition: object, detail: str, mend: str) -> None:
    """Go on when the condition holds, else fail."""
    if not condition:
        raise CheckFailed(detail, mend)


def skip(reason: str) -> NoReturn:
    """End a check that cannot be tried here; the grade cannot rest on it."""
    raise CheckSkipped(reason)


def inapplicable(reason: str) -> NoReturn:
    """End a check whose promise says nothing about this component; it does not count."""
    raise CheckInapplicable(reason)
