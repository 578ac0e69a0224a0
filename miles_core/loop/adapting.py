"""A schedule that adapts, and the parts of a phase that follow it: rollout, buffer, and the measure of busy slots."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from miles_core.contracts.beside import Adapts, Repaces, Resizes, TellsUnchanged
from miles_core.contracts.rollout import Buffer, Rollout, Schedule
from miles_core.errors import Problem, RequestError
from miles_core.loop.occupancy import Occupancy


class Adapting:
    """Asks the schedule after each step whether something is to change, and changes it. Does nothing for schedules that
    do not adapt. Raises RequestError for a rollout or a buffer that cannot follow."""

    def __init__(self, schedule: Schedule, rollout: Rollout, buffer: Buffer, room: int | None) -> None:
        self._schedule = cast(Adapts, schedule) if hasattr(schedule, "adapt") else None
        self._fixed, self._rollout, self._buffer = schedule, rollout, buffer
        if self._schedule is not None:
            self._schedule.begin(room)
            self._check()

    def after(self, step: int, metrics: Mapping[str, float], occupancy: Occupancy | None) -> list[str]:
        """What was changed after so many batches, in sentences."""
        if self._schedule is None:
            return []
        said = list(self._schedule.adapt(step, metrics))
        if said:
            self._follow(occupancy)
        return said

    def unchanged(self) -> str:
        """Why nothing was changed until now; "" when something was, and for schedules that do not say."""
        if not hasattr(self._schedule, "unchanged"):
            return ""
        return cast(TellsUnchanged, self._schedule).unchanged()

    def settings(self) -> dict[str, float]:
        """As metrics."""
        if self._schedule is None:
            return {}
        return {f"schedule/{name}": value for name, value in self._schedule.settings().items()}

    def state(self) -> dict[str, Any]:
        """Empty for schedules that do not adapt."""
        return {} if self._schedule is None else dict(self._schedule.state())

    def restore(self, state: Mapping[str, Any], occupancy: Occupancy | None) -> None:
        if self._schedule is not None and state:
            self._schedule.restore(state)
            self._follow(occupancy)

    def _follow(self, occupancy: Occupancy | None) -> None:
        assert self._schedule is not None
        pace = self._fixed.pace
        cast(Repaces, self._rollout).repace(pace)
        if (room := self._schedule.room) is not None:
            cast(Resizes, self._buffer).resize(room)
        if occupancy is not None and pace.in_flight is not None:
            occupancy.resize(pace.in_flight)

    def _check(self) -> None:
        assert self._schedule is not None
        problems = []
        if not hasattr(self._rollout, "repace"):
            what = f"the rollout {type(self._rollout).__name__} cannot change its pace (no method repace)"
            problems.append(Problem(what, "schedule", "choose rollout groups, or the schedule async"))
        if self._schedule.room is not None and not hasattr(self._buffer, "resize"):
            what = f"the buffer {type(self._buffer).__name__} cannot change its size (no method resize)"
            problems.append(Problem(what, "schedule.room", "leave `room` out, or choose buffer fifo"))
        if problems:
            raise RequestError(problems)
