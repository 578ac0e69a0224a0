"""The `adaptive` schedule: `async`, whose settings follow what the run measures, within bounds that the recipe sets.

Every few steps the controller (`controller`) looks at who waited for whom and changes one thing: how many trajectories
are in flight, how many groups may wait, or how often weights are published. Each change is on record with its cause.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Several
from dataclasses import asdict
from typing import Any

from pydantic import Field, NonNegativeInt, PositiveInt

from miles_core.contracts.component import BuildContext
from miles_core.contracts.engine import PauseMode
from miles_core.contracts.options import ScheduleOptions
from miles_core.contracts.pace import Pace, Refill
from miles_core.contracts.planning import RecipeFacts
from miles_core.rollout.async_schedule import WHAT_HAPPENS, abort_with_agent
from miles_core.rollout.controller import Bounds, Decision, Dials, Measured, Memory, Move, decide
from miles_core.rollout.limits import outside, small_buffer, too_many_in_flight, too_seldom, too_strict

Range = tuple[PositiveInt, PositiveInt]


class AdaptiveOptions(ScheduleOptions):
    """A batch, how old it may be, and between which bounds settings may move."""

    max_staleness: NonNegativeInt | None = Field(
        default=None, description="versions that a group may be behind when it is trained; any number when absent"
    )
    in_flight: Range | None = Field(
        default=None,
        description="trajectories in flight, at least and at most; from a quarter of a batch to 4 batches when absent, "
        "or to what max_staleness leaves room for",
    )
    start: PositiveInt | None = Field(
        default=None, description="trajectories in flight at first; a batch, within the bounds, when absent"
    )
    update_every: Range = Field(
        default=(1, 1), description="steps between two publications, at least (so it starts) and at most"
    )
    room: Range | None = Field(
        default=None,
        description="finished groups that may wait, at least and at most, starting at the buffer's own capacity; when "
        "absent that stays as it is",
    )
    period: PositiveInt = Field(default=5, description="steps that are measured before something is changed")
    tolerance: float = Field(default=0.05, gt=0, lt=1, description="share of time, or of groups, that is no matter")
    pause: PauseMode = Field(
        default=PauseMode.RETRACT, description="what happens to requests in flight when weights are published"
    )

    @property
    def batch(self) -> int:
        return self.groups_per_step * self.group_size

    @property
    def bounds(self) -> tuple[int, int]:
        """Trajectories in flight, at least and at most."""
        if self.in_flight is not None:
            return self.in_flight
        most = 4 * self.batch
        if self.max_staleness is not None:
            most = min(most, (self.max_staleness * self.update_every[1] + 1) * self.batch)
        return max(self.group_size, self.batch // 4), most

    @property
    def first(self) -> int:
        """Trajectories in flight at first."""
        return self.start or max(self.bounds[0], min(self.batch, self.bounds[1]))

    def card(self) -> Mapping[str, str]:
        least, most = self.bounds
        moves = {
            "trajectories in flight": f"{least} to {most}, at first {self.first}",
            "steps between publications": "{} to {}, at first {}".format(*self.update_every, self.update_every[0]),
        }
        if self.room is not None:
            moves["groups that may wait"] = "{} to {}, at first the buffer's capacity".format(*self.room)
        return {
            **moves,
            "moves": f"every {self.period} steps at most, by what the trainer waited, slots were empty and groups were "
            f"too old (more than {self.tolerance:.0%})",
            "requests in flight when weights are published": WHAT_HAPPENS[self.pause],
        }

    def check(self, facts: RecipeFacts) -> Iterable[str]:
        yield from small_buffer(facts)
        why = "engines go on while weights change, so that a group in flight becomes 1 version old"
        yield from too_strict(self.max_staleness, 1, why, facts)
        yield from too_seldom(self.update_every[0], facts)
        for name, pair in (("in_flight", self.bounds), ("update_every", self.update_every), ("room", self.room)):
            if pair is not None and pair[0] > pair[1]:
                yield f"{name} is [{pair[0]}, {pair[1]}]: at least {pair[0]} is more than at most {pair[1]}"
        if self.bounds[0] < self.group_size:
            yield (
                f"in_flight may fall to {self.bounds[0]} trajectories, less than one group of {self.group_size}, so "
                f"none could start; choose {self.group_size} or more"
            )
        yield from outside("start", self.start, "in_flight", self.bounds)
        yield from too_many_in_flight(
            self.bounds[1] if self.in_flight else self.first,
            self.batch,
            self.max_staleness,
            self.update_every[1],
            "in_flight",
        )
        if self.room is not None:
            if self.room[0] < self.groups_per_step:
                yield f"room may fall to {self.room[0]} groups, less than a batch of {self.groups_per_step}"
            yield from outside("the buffer's capacity", facts.buffer_groups, "room", self.room)
        yield from abort_with_agent(self.pause, facts)


class AdaptiveSchedule:
    """See `contracts.rollout.Schedule` and `contracts.beside.Adapts`."""

    def __init__(self, options: AdaptiveOptions, context: BuildContext) -> None:
        self.group_size = options.group_size
        self.groups_per_step = options.groups_per_step
        self._options = options
        self._bounds = Bounds(
            options.group_size,
            options.groups_per_step,
            options.bounds,
            options.room,
            options.update_every,
            options.max_staleness,
            options.tolerance,
        )
        self._dials = Dials(options.first, 0, options.update_every[0])
        self._memory = Memory()
        self._published = 0  # the step of a publication from which the next ones are counted
        self._reached = 0
        self._window: list[dict[str, float]] = []
        self._unchanged = f"fewer steps than its period of {options.period} were measured"

    @property
    def pace(self) -> Pace:
        return Pace(refill=Refill.SAMPLE, in_flight=self._dials.in_flight, pause=self._options.pause)

    @property
    def room(self) -> int | None:
        return self._dials.room or None

    def reach(self, step: int, taken: bool) -> int | None:
        """As in `async`."""
        if self._options.max_staleness is None:
            return None
        every = self._dials.update_every
        intervals = max(0, step - self._published) // every + 1 + self._options.max_staleness
        self._reached = max(self._reached, self._published + intervals * every)
        return self._reached

    def publishes(self, step: int) -> bool:
        return (step - self._published) % self._dials.update_every == 0

    def adapt(self, step: int, metrics: Mapping[str, float]) -> Several[str]:
        self._window.append({name: float(metrics.get(name, 0.0)) for name in _NEEDED})
        if len(self._window) < self._options.period:
            return ()
        measured, self._window = _measured(self._window), []
        decision = decide(self._dials, self._memory, measured, self._bounds)
        self._take(step, decision)
        if decision.said:
            self._unchanged = ""
        elif self._unchanged:
            self._unchanged = decision.unchanged
        return decision.said

    def unchanged(self) -> str:
        return self._unchanged

    def settings(self) -> Mapping[str, float]:
        named = {"in_flight": self._dials.in_flight, "update_every": self._dials.update_every}
        return {**named, "room": self._dials.room} if self._dials.room else named

    def state(self) -> Mapping[str, Any]:
        return {
            "dials": asdict(self._dials),
            "memory": asdict(self._memory),
            "published": self._published,
            "window": list(self._window),
            "unchanged": self._unchanged,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        self._dials = Dials(**state["dials"])
        memory = state["memory"]
        last = memory["last"]
        self._memory = Memory(
            Move(**{**last, "before": Dials(**last["before"])}) if last else None,
            tuple((dial, up, left) for dial, up, left in memory["held"]),
        )
        self._published = state["published"]
        self._window = [dict(each) for each in state["window"]]
        self._unchanged = state.get("unchanged", "")

    def begin(self, room: int | None) -> None:
        """The buffer holds so many groups (None: it does not say)."""
        if self._options.room is not None and room is not None and not self._dials.room:
            self._dials = Dials(self._dials.in_flight, room, self._dials.update_every)

    def _take(self, step: int, decision: Decision) -> None:
        every = self._dials.update_every
        if decision.dials.update_every != every:
            self._published += max(0, step - self._published) // every * every
        self._dials, self._memory = decision.dials, decision.memory


_NEEDED = (
    "time/rollout", "time/train", "time/publish", "time/step", "time/engine_idle", "rollout/groups",
    "buffer/stale", "buffer/remade", "buffer/cancelled", "buffer/staleness_mean", "buffer/queue_size",
)  # fmt: skip


def _measured(steps: Several[Mapping[str, float]]) -> Measured:
    """Of all steps of a period together."""

    def total(name: str) -> float:
        return sum(step[name] for step in steps)

    def over_time(name: str) -> float:
        return sum(step[name] * step["time/step"] for step in steps) / seconds

    working = total("time/rollout") + total("time/train") + total("time/publish") or 1.0
    seconds = total("time/step") or 1.0
    too_old = total("buffer/stale") - total("buffer/remade") + total("buffer/cancelled")
    return Measured(
        trainer_idle=total("time/rollout") / working,
        publishing=total("time/publish") / working,
        engine_idle=over_time("time/engine_idle"),
        wasted=too_old / max(1.0, too_old + total("rollout/groups")),
        staleness=total("buffer/staleness_mean") / len(steps),
        queue=total("buffer/queue_size") / len(steps),
    )
