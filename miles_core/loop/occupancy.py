"""How busy the engines are kept: attempts in flight over time, against the slots that the schedule gives them."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from miles_core.contracts.lifecycle import Clock
from miles_core.contracts.rollout import Attempt
from miles_core.types.trajectory import Trajectory

Generate = Callable[[Attempt], Coroutine[Any, Any, Trajectory]]


@dataclass(slots=True)
class _Sums:
    """Integrals over time: of attempts in flight, of slots, of those that were filled; and the last two over the time
    in which groups could be started."""

    attempts: float = 0.0
    slots: float = 0.0
    filled: float = 0.0
    free_slots: float = 0.0
    free_filled: float = 0.0
    held: float = 0.0


class Occupancy:
    """Integrals over the time since they were last asked for."""

    def __init__(self, slots: int, clock: Clock) -> None:
        self._slots = slots
        self._clock = clock
        self._in_flight = 0
        self._held = False
        self._began = self._last = clock.now()
        self._sums = _Sums()

    def around(self, generate: Generate) -> Generate:
        """`generate`, counted while it runs."""

        async def counted(attempt: Attempt) -> Trajectory:
            self._move(1)
            try:
                return await generate(attempt)
            finally:
                self._move(-1)

        return counted

    def hold(self, held: bool) -> None:
        """From now on no group may be started because of back-pressure, or may again (`RolloutContext.held_back`)."""
        self._move(0)
        self._held = held

    def resize(self, slots: int) -> None:
        """So many slots from now on."""
        self._move(0)
        self._slots = slots

    def metrics(self) -> dict[str, float]:
        """`time/in_flight`: attempts in flight, on average; `time/engine_idle`: the share of slots x time that nothing
        filled; `time/held_back`: the share of time in which back-pressure let no group start; `time/engine_gap`: the
        idle share of slots x the other time. Nothing when no time passed."""
        self._move(0)
        window, sums = self._last - self._began, self._sums
        self._began, self._sums = self._last, _Sums()
        if window <= 0:
            return {}
        metrics = {
            "time/in_flight": sums.attempts / window,
            "time/engine_idle": 1.0 - sums.filled / sums.slots,
            "time/held_back": sums.held / window,
        }
        if sums.free_slots > 0:
            metrics["time/engine_gap"] = 1.0 - sums.free_filled / sums.free_slots
        return metrics

    def _move(self, by: int) -> None:
        now, sums = self._clock.now(), self._sums
        passed = now - self._last
        if passed > 0:
            slots, filled = self._slots * passed, min(self._in_flight, self._slots) * passed
            sums.attempts += self._in_flight * passed
            sums.slots += slots
            sums.filled += filled
            if self._held:
                sums.held += passed
            else:
                sums.free_slots += slots
                sums.free_filled += filled
        self._in_flight += by
        self._last = now
