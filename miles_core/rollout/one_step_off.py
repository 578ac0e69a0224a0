"""The `one-step-off` schedule: while a batch is trained, the next one is made with the weights from before.

Every batch but the first is one version behind, whole: weights are published when nothing is in flight. A run is as
reproducible as a synchronous one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from pydantic import Field, NonNegativeInt, PositiveInt

from miles_core.contracts.component import BuildContext
from miles_core.contracts.options import ScheduleOptions
from miles_core.contracts.pace import Pace
from miles_core.contracts.planning import RecipeFacts
from miles_core.rollout.limits import small_buffer, too_seldom, too_strict


class OneStepOffOptions(ScheduleOptions):
    """A batch, and how often weights are published."""

    update_every: PositiveInt = Field(default=1, description="steps between two publications of weights")
    max_staleness: NonNegativeInt | None = Field(
        default=None, description="versions that a group may be behind; here it is always 1"
    )

    def card(self) -> Mapping[str, str]:
        return {"staleness": "1 version, from the second step on"}

    def check(self, facts: RecipeFacts) -> Iterable[str]:
        yield from small_buffer(facts)
        why = "a batch is made while the one before is trained, which makes it 1 version old"
        yield from too_strict(self.max_staleness, 1, why, facts)
        yield from too_seldom(self.update_every, facts)


class OneStepOffSchedule:
    """See `contracts.rollout.Schedule`."""

    pace = Pace(settles=True)

    def __init__(self, options: OneStepOffOptions, context: BuildContext) -> None:
        self.group_size = options.group_size
        self.groups_per_step = options.groups_per_step
        self._update_every = options.update_every

    def reach(self, step: int, taken: bool) -> int | None:
        return step + 2 if taken else step + 1

    def publishes(self, step: int) -> bool:
        return step % self._update_every == 0
