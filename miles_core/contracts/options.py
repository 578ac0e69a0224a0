"""The options model of a component: what a person may write beside `use:` in a recipe."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pydantic import BaseModel, ConfigDict, Field, NonNegativeInt, PositiveInt

if TYPE_CHECKING:
    from miles_core.contracts.planning import RecipeFacts


RECIPE_KEYS: Mapping[str, tuple[str, ...]] = {
    "generator": ("sampling",),
    "engine": ("replicas",),
    "reward": ("name", "weight"),
    "runtime": ("driver", "driver_restarts"),
}
"""By kind: keys of a recipe's section, beside `use`, that are the recipe's own. No option may have their names."""


TIME_LIMIT = 3600.0
"""Seconds that an evaluation may take where its options do not say."""


class Options(BaseModel):
    """Base of every options model. Unknown keys are refused, values are not coerced from strings, instances are frozen.

    Override `card` to say what the choice means where its name leaves it open, and `check` to refuse recipes in which
    these options cannot work. Neither may import torch. Override `code` where options name research code. Numbers are
    finite; a field that means something by infinity says `allow_inf_nan=True`.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=False, validate_default=True, allow_inf_nan=False)

    def card(self) -> Mapping[str, str]:
        return {}

    def check(self, facts: RecipeFacts) -> Iterable[str]:
        return ()

    def code(self) -> Iterable[str]:
        """Each `module:attr` of research code that the options name: imported with the plan, and in the run's lock."""
        return ()


class NoOptions(Options):
    """The options of a component that has none."""


class ScheduleOptions(Options):
    """What every schedule's options have, since the batch arithmetic is computed from it."""

    groups_per_step: PositiveInt = Field(description="groups in the batch of one step")
    group_size: PositiveInt = Field(description="trajectories in a group")


class StalenessOptions(Options):
    """What every staleness policy's options have, since a schedule's `max_staleness` sets it."""

    limit: NonNegativeInt = Field(description="versions; by default the schedule's `max_staleness`")


class EvaluatorOptions(Options):
    """What the core reads of an evaluator's options where it is there: an evaluator without them has the defaults."""

    name: str = Field(
        default="held-out", pattern=r"^[^/\s][^/]*$", description="the evaluation's name in metrics and reports"
    )
    every: int = Field(default=0, ge=0, description="steps between evaluations; 0: only before and after training")
    time_limit: float = Field(default=TIME_LIMIT, gt=0, description="seconds after which an evaluation is given up")

    def is_due(self, step: int, last: bool) -> bool:
        """Before training, after it, and every so many steps."""
        return step == 0 or last or (self.every > 0 and step % self.every == 0)


class RuntimeOptions(Options):
    """What the core asks of a runtime's options where it is there."""

    def spans_machines(self) -> str:
        """Why the workers may be on several machines, in words that `miles plan` shows; "" when all share one. Where
        they may, `transport: {use: auto}` is one that crosses machines (it lacks the capability `one-machine`): the
        one of the runtime's own distribution, else the only one of the enabled plugins."""
        return ""


class TrainerOptions(Options):
    """What every trainer's options have, since the batch arithmetic is computed from it."""

    optimizer_steps: PositiveInt = Field(default=1, description="optimizer steps on each batch")
