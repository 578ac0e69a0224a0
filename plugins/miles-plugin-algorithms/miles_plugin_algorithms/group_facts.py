"""What every advantage that compares the trajectories of a group asks of the rest of the recipe."""

from __future__ import annotations

from collections.abc import Iterator

from miles_core import RecipeFacts


def check_comparable(name: str, facts: RecipeFacts) -> Iterator[str]:
    """Sentences for recipes in which a group has nothing to compare."""
    if facts.group_size == 1:
        yield (
            f"{name} compares the trajectories of a group with each other, and schedule.group_size is 1: no trajectory "
            "has another to be compared with, so every advantage would be 0 and nothing would be learned; set "
            "schedule.group_size to 2 or more (8 is usual)"
        )
    elif facts.sampling.temperature == 0:
        yield (
            f"{name} compares the {facts.group_size} trajectories of a group with each other, and sampling at "
            "temperature 0 makes them all the same; set generator.sampling.temperature above 0 (1.0 is usual)"
        )
