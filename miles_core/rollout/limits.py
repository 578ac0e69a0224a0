"""Settings of schedules that contradict each other, in sentences with the arithmetic."""

from __future__ import annotations

from collections.abc import Iterator

from miles_core.contracts.planning import RecipeFacts


def small_buffer(facts: RecipeFacts) -> Iterator[str]:
    """A rollout that runs ahead of the trainer needs somewhere to put the next batch."""
    if facts.buffer_groups is not None and facts.buffer_groups < facts.groups_per_step:
        yield (
            f"a batch is {facts.groups_per_step} groups and the buffer holds {facts.buffer_groups}, so the next batch "
            "cannot be ready while one is trained; set buffer.capacity to 1.0 or more"
        )


def too_strict(max_staleness: int | None, implied: int, why: str, facts: RecipeFacts) -> Iterator[str]:
    """Groups that go the usual way would be too old when they arrive."""
    if max_staleness is not None and max_staleness < implied:
        yield f"max_staleness is {max_staleness}, but {why}; choose {implied} or more"
    elif max_staleness is None and facts.staleness_limit is not None and facts.staleness_limit < implied:
        yield f"staleness.limit is {facts.staleness_limit}, but {why}; choose {implied} or more"


def too_seldom(update_every: int, facts: RecipeFacts) -> Iterator[str]:
    """Weights that are never new while a phase lasts."""
    if update_every > facts.steps > 1:
        yield (
            f"update_every is {update_every} and there are {facts.steps} steps, so that weights would be new only when "
            f"all is over; choose {facts.steps - 1} or less"
        )


def too_many_in_flight(
    slots: int, batch: int, max_staleness: int | None, update_every: int, name: str
) -> Iterator[str]:
    """More trajectories at once than can be young enough when their turn comes."""
    if max_staleness is None:
        return
    batches = max_staleness * update_every + 1
    if slots > batches * batch:
        interval = "step" if update_every == 1 else f"{update_every} steps"
        yield (
            f"{slots} trajectories in flight are {slots / batch:.3g} batches of {batch}, but with max_staleness "
            f"{max_staleness} and weights that are new every {interval} no more than {batches} can be under way; "
            f"choose {name} {batches * batch} or less, or a higher max_staleness"
        )


def outside(what: str, value: int | None, name: str, bounds: tuple[int, int]) -> Iterator[str]:
    """A start that is not within its bounds."""
    if value is not None and not bounds[0] <= value <= bounds[1]:
        yield f"{what} is {value}, outside of the bounds of {name}, {bounds[0]} to {bounds[1]}"
