"""An engine's life: its states, what may happen in each, and what comes of it. Pure: no clock, no process.

    starting ──ready──> loading ──loaded──> serving ──publish──> loading …
        │                  │                  │
        │               publish (load again)  │
        └───────drain──────┴──────drain───────┴──> draining
    every state but dead ──die──> dead ──restart──> starting, while restarts are left

An engine serves only from `loaded` with the version that it was told to load, so that none answers with weights that
the run does not know.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum


class State(StrEnum):
    """What an engine does."""

    STARTING = "starting"
    LOADING = "loading"
    SERVING = "serving"
    DRAINING = "draining"
    DEAD = "dead"


class IllegalTransition(AssertionError):
    """The owner of a life has a fault: this cannot happen in that state."""


@dataclass(frozen=True, slots=True)
class Life:
    """One engine's life, as a value: each event gives the next one or raises IllegalTransition.

    version   the weight version that it loads or serves; None before its first and after its death
    restarts  how often it was started again since it was last steady
    starts    how often it was started in all
    why       why it drains, or died
    """

    state: State = State.STARTING
    version: int | None = None
    restarts: int = 0
    starts: int = 1
    why: str = ""

    def ready(self, version: int) -> Life:
        """Its process is there: it loads `version`."""
        self._only("ready", State.STARTING)
        return replace(self, state=State.LOADING, version=version)

    def publish(self, version: int) -> Life:
        """A newer version is published: it loads that one, whatever it loaded or served."""
        self._only("publish", State.LOADING, State.SERVING)
        if self.version is not None and version < self.version:
            raise IllegalTransition(f"version {version} published to an engine with version {self.version}")
        return replace(self, state=State.LOADING, version=version)

    def loaded(self, reported: int | None) -> Life:
        """It reports a version: the one that it was to load, or it does not serve."""
        self._only("loaded", State.LOADING)
        if reported != self.version:
            raise IllegalTransition(f"an engine that loads version {self.version} reports {reported}")
        return replace(self, state=State.SERVING)

    def steady(self) -> Life:
        """It served for long: earlier deaths no longer count."""
        self._only("steady", State.SERVING)
        return replace(self, restarts=0)

    def drain(self, why: str) -> Life:
        """It gets no more requests and is ended."""
        self._only("drain", State.STARTING, State.LOADING, State.SERVING)
        return replace(self, state=State.DRAINING, why=why)

    def die(self, why: str) -> Life:
        """Its process is gone. Why it drained is why it died."""
        self._only("die", State.STARTING, State.LOADING, State.SERVING, State.DRAINING)
        return replace(self, state=State.DEAD, version=None, why=self.why if self.state is State.DRAINING else why)

    def restart(self, limit: int) -> Life:
        """Start it again; not more than `limit` times."""
        self._only("restart", State.DEAD)
        if not self.may_restart(limit):
            raise IllegalTransition(f"an engine was started again {self.restarts} times, the limit is {limit}")
        return Life(State.STARTING, restarts=self.restarts + 1, starts=self.starts + 1)

    def may_restart(self, limit: int) -> bool:
        return self.restarts < limit

    def __str__(self) -> str:
        if self.state is State.LOADING:
            return f"loading version {self.version}"
        if self.state is State.SERVING:
            return f"serving version {self.version}"
        return f"{self.state.value} ({self.why})" if self.why else self.state.value

    def _only(self, event: str, *states: State) -> None:
        if self.state not in states:
            raise IllegalTransition(f"{event!r} cannot happen to an engine that is {self.state.value}")


def delay(restarts: int, first: float, most: float = 60.0) -> float:
    """Seconds to wait before a restart that follows `restarts` others: doubled each time."""
    return min(most, first * 2.0 ** min(restarts, 30))
