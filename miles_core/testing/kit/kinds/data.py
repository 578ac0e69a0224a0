"""A data source: tasks in an order that a resumed run continues, and others that are never drawn."""

from __future__ import annotations

import json
from collections import Counter

from miles_core.contracts.rollout import Data, Draw
from miles_core.errors import RequestError
from miles_core.testing.kit.check import Grade, check, expect, inapplicable
from miles_core.testing.kit.samples import snapshot
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.types.task import Task

DRAWS = 40
HELD_OUT = 8


@check("data", Grade.GOLD, "it draws tasks, each with how often it had been drawn before")
def draws_are_counted(subject: ComponentSubject) -> None:
    drawn: Counter[str] = Counter()
    contents: dict[str, str] = {}
    for draw in _draws(subject.build(), DRAWS):
        task = draw.task
        expect(isinstance(task, Task), f"the task is {task!r:.100}", "draw miles_core.Draw(task, draw)")
        expect(
            draw.draw == drawn[task.id],
            f"task {task.id!r} comes with draw {draw.draw}, it had been drawn {drawn[task.id]} times",
            "count how often each task was drawn: the noise of a second attempt depends on it",
        )
        drawn[task.id] += 1
        text = repr((task.prompt, task.answer))
        expect(
            contents.setdefault(task.id, text) == text,
            f"two tasks have the id {task.id!r}",
            "an id is unique in its data source and stable across runs",
        )
    expect(drawn, "it has no task at all with its example", "let the example name at least one task")


@check("data", Grade.GOLD, "the same seed draws the same tasks, in another object too")
def same_seed_same_order(subject: ComponentSubject) -> None:
    first, second = (snapshot(_draws(subject.build(), DRAWS)) for _ in range(2))
    expect(first == second, "two objects with the same seed draw differently", "derive the order from context.seed")


@check("data", Grade.GOLD, "held-out tasks are never drawn, and more of them begin with the fewer")
def held_out_apart(subject: ComponentSubject) -> None:
    data: Data = subject.build()
    try:
        held = data.held_out(HELD_OUT)
    except RequestError as error:
        inapplicable(f"it has no held-out tasks: {error}")
    expect(len(held) <= HELD_OUT, f"{len(held)} of {HELD_OUT} held-out tasks", "give the first `count`, or fewer")
    fewer = data.held_out(max(1, len(held) // 2))
    expect(
        [task.id for task in fewer] == [task.id for task in held[: len(fewer)]],
        "fewer held-out tasks are others than the first of more",
        "held_out(count) gives the first `count` of one fixed list: evaluations compare on equal tasks",
    )
    drawn = [draw.task for draw in _draws(data, DRAWS)]
    both = {task.id for task in held} & {task.id for task in drawn}
    expect(not both, f"held out, and drawn as well: {sorted(both)[:3]}", "keep the splits apart")
    prompts = {repr(task.prompt) for task in held} & {repr(task.prompt) for task in drawn}
    expect(not prompts, f"a held-out prompt is also trained on: {sorted(prompts)[:1]}", "keep the prompts apart, too")
    again = [draw.task.id for draw in _draws(subject.build(), DRAWS)]
    expect([t.id for t in drawn] == again, "asking for held-out tasks changes what is drawn", "keep the two apart")


@check("data", Grade.GOLD, "state is JSON, and restore continues at the same task, also after the end")
def resumes(subject: ComponentSubject) -> None:
    for already in (0, 1, 7, DRAWS):
        data = subject.build()
        _draws(data, already)
        state = json.loads(json.dumps(data.state(), allow_nan=False))
        expected = snapshot(_draws(data, DRAWS))
        resumed = subject.build()
        resumed.restore(state)
        found = snapshot(_draws(resumed, DRAWS))
        expect(
            found == expected,
            f"after {already} draws, state and restore, other tasks come than without",
            "let state() hold all that the next draw depends on, as JSON data",
        )


@check("data", Grade.GOLD, "size says how many draws there are, and after them draw gives None again and again")
def size_agrees(subject: ComponentSubject) -> None:
    data: Data = subject.build()
    size = data.size()
    if size is None:
        drawn = _draws(data, DRAWS)
        expect(len(drawn) == DRAWS, f"endless data ended after {len(drawn)} draws", "say its size, or never give None")
        return
    if size > 2_000:
        inapplicable(f"its example has {size} draws, too many to count here")
    drawn = _draws(data, size + 1)
    expect(len(drawn) == size, f"size says {size}, there are {len(drawn)} draws", "count what draw gives")
    expect(data.draw() is None and data.draw() is None, "it draws again after the end", "None stays None")
    expect(data.size() == size, "its size changes while it is drawn from", "size is that of the whole")


def _draws(data: Data, count: int) -> list[Draw]:
    """At most `count` draws."""
    found = []
    for _ in range(count):
        draw = data.draw()
        if draw is None:
            break
        expect(isinstance(draw, Draw), f"draw returned {draw!r:.100}", "return miles_core.Draw(task, draw), or None")
        found.append(draw)
    return found
