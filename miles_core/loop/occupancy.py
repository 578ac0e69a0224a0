"""How busy the engines are kept: attempts in flight over time, against the slots that the schedule gives them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from miles_core.contracts.lifecycle import Clock
from miles_core.contracts.rollout import Attempt
from miles_core.types.trajectory import Trajectory

Generate = Callable[[Attempt], Coroutine[Any, Any, Trajectory]]


class Occupancy:
    """Integrals over the time since they were last asked for."""

    def __init__(self, slots: int, clock: Clock) -> None:
        self._slots = slots
        self._clock = clock
        self._in_flight = 0
        self._began = self._last = clock.now()
        self._attempt_seconds = 0.0
        self._busy_seconds = 0.0

    def around(self, generate: Generate) -> Generate:
        """`generate`, counted while it runs."""

        async def counted(attempt: Attempt) -> Trajectory:
            self._move(1)
            try:
                return await generate(attempt)
            finally:
                self._move(-1)

        return counted

    def metrics(self) -> dict[str, float]:
        """`time/in_flight`: attempts in flight, on average; `time/engine_idle`: the share of slots x time that nothing
        filled. Nothing when no time passed."""
        self._move(0)
        window = self._last - self._began
        attempts, busy = self._attempt_seconds, self._busy_seconds
        self._began, self._attempt_seconds, self._busy_seconds = self._last, 0.0, 0.0
        if window <= 0:
            return {}
        return {"time/in_flight": attempts / window, "time/engine_idle": 1.0 - busy / (self._slots * window)}

    def _move(self, by: int) -> None:
        now = self._clock.now()
        self._attempt_seconds += self._in_flight * (now - self._last)
        self._busy_seconds += min(self._in_flight, self._slots) * (now - self._last)
        self._in_flight += by
        self._last = now
