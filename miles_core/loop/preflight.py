"""Checks before any work: every prompt that the run will draw fits the model, and there is something to draw."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Sequence as Several

from miles_core.contracts.capabilities import EXPORTED_WEIGHTS, IMAGES
from miles_core.contracts.images import has_images, prompt_tokens
from miles_core.contracts.model import ModelCard, Renderer
from miles_core.errors import Problem, RequestError
from miles_core.loop.ring import Phase
from miles_core.types.task import Task

LOOKED_AT = 5_000
SHOWN = 10


def check(phases: Several[Phase], renderer: Renderer | None, card: ModelCard | None) -> None:
    """Raises RequestError listing the tasks that cannot work. Leaves every data source where it was."""
    problems: list[Problem] = []
    for phase in phases:
        tasks = _upcoming(phase)
        if not tasks:
            problems.append(
                Problem("the data has no tasks", f"phase {phase.plan.name!r}, data {phase.plan.data.name!r}")
            )
        for evaluator, ref in zip(phase.evaluators, phase.plan.evaluators, strict=True):
            held_out = evaluator.tasks(phase.data)
            if not held_out and EXPORTED_WEIGHTS not in ref.capabilities:
                problems.append(Problem(f"evaluation {evaluator.name!r} has no tasks", f"phase {phase.plan.name!r}"))
            known = {task.id for task in tasks}  # data may measure what it trains on
            tasks += [task for task in held_out if task.id not in known]
        problems += _blind(tasks, phase)
        if renderer is not None and card is not None:
            problems += _too_long(tasks, renderer, card, phase)
    if problems:
        more = len(problems) - SHOWN
        raise RequestError([*problems[:SHOWN], *([Problem(f"and {more} more")] if more > 0 else [])])


def _blind(tasks: Several[Task], phase: Phase) -> Iterable[Problem]:
    """Tasks with images that an engine or a trainer of the phase does not take."""
    first = next((task for task in tasks if has_images(task.messages)), None)
    if first is None:
        return
    for kind in ("engine", "trainer"):
        names, declared = phase.plan.facts.chosen.get(kind, ()), phase.plan.facts.capabilities.get(kind, frozenset())
        if names and IMAGES not in declared and (kind == "trainer" or phase.generator.needs_engine):
            yield Problem(
                f"the task has an image, and {kind} {names[0]!r} takes none",
                f"task {first.id!r}",
                f"use tasks of text, or another {kind}: one that declares the capability `{IMAGES}`",
            )


def _upcoming(phase: Phase) -> list[Task]:
    """The tasks that the phase will draw, as far as filters let that be known; each once."""
    state = phase.data.state()
    tasks: dict[str, Task] = {}
    for _ in range(min(LOOKED_AT, (phase.end - phase.first) * phase.schedule.groups_per_step)):
        draw = phase.data.draw()
        if draw is None:
            break
        tasks[draw.task.id] = draw.task
    phase.data.restore(state)
    return list(tasks.values())


def _too_long(tasks: Several[Task], renderer: Renderer, card: ModelCard, phase: Phase) -> Iterable[Problem]:
    asked = phase.plan.sampling.max_new_tokens if phase.generator.needs_engine else 0
    for task in tasks:
        try:
            length = len(prompt_tokens(renderer, task))
        except ValueError as error:
            mend = "choose a `model:` whose renderer shows images" if has_images(task.messages) else ""
            yield Problem(f"the prompt cannot be rendered: {error}", f"task {task.id!r}", mend)
            continue
        if length + asked > card.context:
            yield Problem(
                f"the prompt has {length} tokens; with {asked} new ones that exceeds the context of {card.context}",
                f"task {task.id!r}",
                "shorten the prompt or lower generator.sampling.max_new_tokens",
            )
