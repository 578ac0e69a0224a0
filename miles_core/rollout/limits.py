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


def too_strict(max_staleness: int | None, implied: int, why: str) -> Iterator[str]:
    """Groups that go the usual way would be too old when they arrive."""
    if max_staleness is not None and max_staleness < implied:
        yield f"max_staleness is {max_staleness}, but {why}; choose {implied} or more"
