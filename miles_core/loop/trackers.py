"""Trackers, each by itself: one that fails is counted and named, the others and the run go on.

Where metrics go is no reason to lose a week of training: the run's own folder has them. A tracker that cannot even
start is refused, since nothing is lost by then; a strict run ends with the first failure.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Several
from typing import Any

from miles_core.contracts.blame import place_of, text_of
from miles_core.contracts.component import BuildContext, ComponentRef
from miles_core.contracts.observing import Tracker
from miles_core.errors import MilesError, PluginError
from miles_core.loop.shape import shaped

log = logging.getLogger("miles.plugins")

LOGGED = 3
"""Failures of one tracker that are logged; the others are only counted."""


class WatchedTracker:
    """One tracker, with what it did so far."""

    def __init__(self, ref: ComponentRef, tracker: Tracker, *, strict: bool = False) -> None:
        self._ref = ref
        self._tracker = tracker
        self._strict = strict
        self._calls = self._failures = 0
        self._seconds = 0.0
        self._last_error = ""

    def start(self, run: str, recipe: Mapping[str, Any]) -> None:
        """Raises PluginError when it cannot start."""
        self._call("start", lambda: self._tracker.start(run, recipe), fatal=True)

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Raises PluginError in a strict run."""
        own = dict(metrics)  # what one tracker does to them is not seen by the others
        self._call("log", lambda: self._tracker.log(step, own), fatal=self._strict)

    def close(self, outcome: str) -> None:
        """Never raises: the run is over."""
        self._call("close", lambda: self._tracker.close(outcome), fatal=False)

    def to_json(self) -> dict[str, Any]:
        """Calls, failures and seconds, in the form that event hooks' have."""
        return {
            "name": f"tracker {self._ref.name}",
            "distribution": self._ref.distribution,
            "version": self._ref.version,
            "calls": self._calls,
            "failures": self._failures,
            "seconds": round(self._seconds, 6),
            "last_error": self._last_error,
        }

    def _call(self, method: str, call: Callable[[], None], *, fatal: bool) -> None:
        self._calls += 1
        began = time.perf_counter()
        try:
            call()
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # a plugin may raise anything
            self._failures += 1
            self._last_error = text_of(error)
            told = _blame(self._ref, method, error)
            if fatal:
                raise told from error
            if self._failures <= LOGGED:
                more = "; further failures are only counted" if self._failures == LOGGED else ""
                log.error("%s%s", told.problems[0].what, more)
        finally:
            self._seconds += time.perf_counter() - began


def start_trackers(
    refs: Several[ComponentRef], seed: int, folder: Any, recipe: Mapping[str, Any], *, strict: bool
) -> list[WatchedTracker]:
    """The run's trackers, built and started. Raises PluginError for one that cannot; those before it are closed."""
    started: list[WatchedTracker] = []
    try:
        for ref in refs:
            made = shaped(ref, ref.build(BuildContext(seed, f"tracker-{ref.name}", folder)))
            tracker = WatchedTracker(ref, made, strict=strict)
            tracker.start(folder.name, recipe)
            started.append(tracker)
    except MilesError:
        for tracker in started:
            tracker.close("failed")
        raise
    return started


def _blame(ref: ComponentRef, method: str, error: BaseException) -> PluginError:
    place = place_of(error)
    return PluginError(
        f"tracker {ref.name!r} of {ref.owner} failed in {method}: {text_of(error)}{f' ({place})' if place else ''}",
        mend=f"repair it, or take {ref.name!r} out of the recipe's trackers",
    )
