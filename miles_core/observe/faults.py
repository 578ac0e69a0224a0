"""What died in a run and what was done about it: events in words, and how many there were."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Facts = Mapping[str, Any]


def _first_line(text: Any) -> str:
    return str(text).partition("\n")[0]


def _restored(facts: Facts) -> str:
    which = f"restore {facts['restore']} of {facts['of']}"
    return (
        f"{facts['lost']} died in step {facts['died_at']}: the run goes on from step {facts['step']} ({which}); "
        f"{_first_line(facts['why'])}"
    )


def _waiting(facts: Facts) -> str:
    bound = f", for {facts['at_most']:g} s at most" if "at_most" in facts else ""
    return f"{facts['who']} wait{'' if facts['who'] == 'requests' else 's'} for {facts['whom']}{bound}"


WORDS: Mapping[str, Callable[[Facts], str]] = {
    "engine_lost": lambda f: f"engine {f['engine']} is lost, {f['left']} left: {_first_line(f['why'])}",
    "engine_unhealthy": lambda f: f"engine {f['engine']} is ended: {_first_line(f['why'])}",
    "engine_restarting": lambda f: (
        f"engine {f['engine']} is started again in {f['after']:g} s (restart {f['restart']} of {f['of']})"
    ),
    "engine_ready": lambda f: f"engine {f['engine']} serves version {f['version']} after {f['seconds']:.1f} s",
    "engine_given_up": lambda f: f"engine {f['engine']} is given up, its restarts are spent; {f['left']} left",
    "request_aborted": lambda f: f"request {f['request']} is aborted: {f['deaths']} engines died under it",
    "run_restored": _restored,
    "driver_died": lambda f: (
        f"{_first_line(f['why'])}; it is started again in {f['after']:g} s (restart {f['restart']} of {f['of']})"
    ),
    "driver_restarted": lambda f: (
        f"a new driver goes on from step {f['step']} (restart {f['restart']} of {f['of']}); {_first_line(f['why'])}"
    ),
    "waiting": _waiting,
}
"""Event -> its sentence."""

KEPT = tuple(name for name in WORDS if name != "waiting")
"""Those that stay on record when a run goes back to a checkpoint: they happened, whatever is made again."""

_COUNTED = {
    "engine_lost": "engines_lost",
    "engine_ready": "engine_restarts",
    "run_restored": "restores",
    "driver_restarted": "driver_restarts",
}


def sentence(name: str, facts: Facts) -> str:
    """The event in words; "" when it is no fault."""
    words = WORDS.get(name)
    return "" if words is None else words(facts)


def count_faults(events: Iterable[Facts]) -> dict[str, int]:
    """`engines_lost`, `engine_restarts` (those that served again), `restores` and `driver_restarts` of a run; empty
    when there were none. `run.json` has them, and the summary."""
    counts = dict.fromkeys(_COUNTED.values(), 0)
    for event in events:
        if (what := _COUNTED.get(str(event["event"]))) is not None:
            counts[what] += 1
    return counts if any(counts.values()) else {}


def in_words(counts: Mapping[str, int]) -> str:
    """The counts in a line; "" without any."""
    parts = [
        f"{number} {one if number == 1 else several}"
        for key, one, several in (
            ("engines_lost", "engine lost", "engines lost"),
            ("engine_restarts", "engine started again", "engines started again"),
            ("restores", "restore", "restores"),
            ("driver_restarts", "driver started again", "drivers started again"),
        )
        if (number := counts.get(key, 0))
    ]
    return ", ".join(parts)
