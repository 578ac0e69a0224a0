"""The batch arithmetic: what a recipe comes to, in tasks, groups, trajectories, tokens and optimizer steps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from miles_core.contracts.planning import RecipeFacts
from miles_core.recipe.choose import Chosen
from miles_core.recipe.phases import PhaseChoice
from miles_core.recipe.rules import asks_engine


def arithmetic(
    phases: Sequence[tuple[PhaseChoice, RecipeFacts]], run: Mapping[str, Chosen]
) -> tuple[tuple[str, int], ...]:
    """(what, number), phase by phase, then the totals."""
    lines: list[tuple[str, int]] = []
    several = len(phases) > 1
    totals: dict[str, int] = {}
    for phase, facts in phases:
        numbers = _phase(phase, facts, run)
        lines += [(f"{phase.name}: {what}" if several else what, number) for what, number in numbers]
        for what, number in numbers:
            if what.endswith(_IN_ALL):
                totals[what] = totals.get(what, 0) + number
    if several:
        lines += [("steps in all phases", sum(phase.steps for phase, _ in phases)), *totals.items()]
    return tuple(lines)


_IN_ALL = "in all"


def _phase(phase: PhaseChoice, facts: RecipeFacts, run: Mapping[str, Chosen]) -> list[tuple[str, int]]:
    trajectories = facts.groups_per_step * facts.group_size
    samples = "engine" in run and asks_engine(facts)
    numbers = [
        ("steps", phase.steps),
        ("groups per step", facts.groups_per_step),
        ("trajectories per group", facts.group_size),
        ("trajectories per step", trajectories),
        (f"tasks drawn {_IN_ALL}", phase.steps * facts.groups_per_step),
        (f"trajectories {_IN_ALL}", phase.steps * trajectories),
    ]
    if samples:
        per_step = trajectories * facts.sampling.max_new_tokens
        numbers += [
            ("sampled tokens per step, at most", per_step),
            (f"sampled tokens at most {_IN_ALL}", per_step * phase.steps),
        ]
    if "trainer" in run:
        numbers += [
            ("optimizer steps per batch", facts.optimizer_steps),
            ("trajectories per optimizer step", trajectories // facts.optimizer_steps),
            (f"optimizer steps {_IN_ALL}", facts.optimizer_steps * phase.steps),
        ]
    if facts.buffer_groups is not None:
        numbers.append(("groups that the buffer holds", facts.buffer_groups))
    for each in phase.many.get("evaluate", ()):
        tasks = getattr(each.options, "tasks", None)
        if isinstance(tasks, int):
            numbers.append((f"tasks of each {each.ref.name} evaluation", tasks))
    return numbers
