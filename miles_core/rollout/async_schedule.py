"""The `async` schedule: engines never wait for the trainer, the trainer takes finished groups as they come.

How old a group may be when it is trained is the recipe's choice (`max_staleness`): nothing is started that would be too
old when its turn comes, and the buffer discards what came late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from pydantic import Field, NonNegativeInt, PositiveInt

from miles_core.contracts.component import BuildContext
from miles_core.contracts.engine import PauseMode
from miles_core.contracts.options import ScheduleOptions
from miles_core.contracts.pace import Pace, Refill
from miles_core.contracts.planning import RecipeFacts
from miles_core.rollout.limits import small_buffer, too_many_in_flight, too_seldom, too_strict

WHAT_HAPPENS = {
    PauseMode.RETRACT: "keep their tokens and recompute the cache under the new weights",
    PauseMode.IN_PLACE: "keep their tokens and the cache of the old weights",
    PauseMode.ABORT: "end, and their groups are discarded as aborted",
}


class AsyncOptions(ScheduleOptions):
    """A batch, how far the rollout may run ahead, and how its slots are filled."""

    max_staleness: NonNegativeInt | None = Field(
        default=None, description="versions that a group may be behind when it is trained; any number when absent"
    )
    refill: Literal["sample", "group"] = Field(
        default="sample", description="whether each finished trajectory frees its slot, or a finished group all of its"
    )
    over_sampling: float = Field(default=1.0, ge=1, description="groups in flight, as a multiple of a batch")
    in_flight: PositiveInt | None = Field(
        default=None, description="trajectories in flight at most; over_sampling batches when absent"
    )
    update_every: PositiveInt = Field(default=1, description="steps between two publications of weights")
    order: Literal["arrival", "submission"] = Field(
        default="arrival", description="whether batches are made of groups as they finish, or as they were submitted"
    )
    pause: PauseMode = Field(
        default=PauseMode.RETRACT, description="what happens to requests in flight when weights are published"
    )

    @property
    def slots(self) -> int:
        """Trajectories in flight at most."""
        return self.in_flight or int(self.over_sampling * self.groups_per_step) * self.group_size

    def card(self) -> Mapping[str, str]:
        return {
            "in flight": f"{self.slots} trajectories at most; a slot is free again with each {self.refill}",
            "requests in flight when weights are published": WHAT_HAPPENS[self.pause],
        }

    def check(self, facts: RecipeFacts) -> Iterable[str]:
        yield from small_buffer(facts)
        why = "engines go on while weights change, so that a group in flight becomes 1 version old"
        yield from too_strict(self.max_staleness, 1, why, facts)
        yield from too_seldom(self.update_every, facts)
        yield from self._check_slots()
        yield from abort_with_agent(self.pause, facts)
        if self.order == "submission" and "no-engine" in facts.capabilities.get("rollout", ()):
            yield "order is submission, but this rollout repeats saved groups, whose numbers have gaps; choose arrival"

    def _check_slots(self) -> Iterable[str]:
        batch = self.groups_per_step * self.group_size
        if self.in_flight is not None and self.in_flight < self.group_size:
            yield (
                f"in_flight is {self.in_flight} trajectories, less than one group of {self.group_size}, so none could "
                f"start; choose {self.group_size} or more"
            )
        if self.in_flight is not None and self.over_sampling != 1.0:
            yield (
                f"in_flight says {self.in_flight} trajectories and over_sampling says {self.over_sampling:g} x {batch} "
                f"= {int(self.over_sampling * self.groups_per_step) * self.group_size}; keep one of them"
            )
        if self.refill == "group" and self.slots > self.group_size and self.slots % self.group_size:
            idle = self.slots % self.group_size
            yield (
                f"{self.slots} slots are {self.slots // self.group_size} groups of {self.group_size} and {idle} slots "
                f"that refill by group can never fill; choose in_flight {self.slots - idle} or "
                f"{self.slots - idle + self.group_size}"
            )
        yield from too_many_in_flight(self.slots, batch, self.max_staleness, self.update_every, "in_flight")


class AsyncSchedule:
    """See `contracts.rollout.Schedule`."""

    def __init__(self, options: AsyncOptions, context: BuildContext) -> None:
        self.group_size = options.group_size
        self.groups_per_step = options.groups_per_step
        self.pace = Pace(
            refill=Refill(options.refill),
            in_flight=options.slots,
            ordered=options.order == "submission",
            pause=options.pause,
        )
        self._update_every = options.update_every
        self._max_staleness = options.max_staleness

    def reach(self, step: int, taken: bool) -> int | None:
        """Up to the last batch for which what is started now, under the weights of this step, is young enough: more
        would be made only to be thrown away."""
        if self._max_staleness is None:
            return None
        return (step // self._update_every + self._max_staleness + 1) * self._update_every

    def publishes(self, step: int) -> bool:
        return step % self._update_every == 0


def abort_with_agent(pause: PauseMode, facts: RecipeFacts) -> Iterable[str]:
    """An agent's conversation cannot go on after a request that was cut off."""
    if pause is PauseMode.ABORT and "agent" in facts.chosen:
        yield "pause is abort, which would break the token history of the agent's sessions; choose retract or in-place"
