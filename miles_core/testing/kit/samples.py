"""Tasks and groups that a component is tried on: those of its own plugin's data, where it has some."""

from __future__ import annotations

from collections.abc import Sequence as Several
from dataclasses import replace
from typing import Any

from miles_core.contracts.rollout import Data
from miles_core.testing.fakes.makers import make_group, make_task
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.types.task import Task
from miles_core.types.trajectory import Group, Status

SUMS = ((1, 2), (2, 2), (7, 5), (40, 2))
SIZES = (4, 1, 3, 8)


def sample_tasks(subject: ComponentSubject, count: int) -> list[Task]:
    """Tasks of different ids. A reward may take only what the data of its own plugin gives."""
    for registered in subject.registry.components("data"):
        if registered.plugin == subject.plugin and subject.plugin.distribution != "miles-core":
            return _draw(subject.beside(registered).build(), count)
    sums = [(left + turn, right) for turn in range(count) for left, right in SUMS]
    return [make_task(f"{a}+{b}=", str(a + b), id=f"sum-{a}-{b}") for a, b in sums[:count]]


def renderable_tasks(subject: ComponentSubject, count: int) -> list[Task]:
    """The same, in characters that `CharRenderer` has tokens for."""
    return [
        replace(task, prompt=_ascii(task.prompt), answer=task.answer and _ascii(task.answer))
        for task in sample_tasks(subject, count)
    ]


def sample_groups(subject: ComponentSubject) -> list[Group]:
    """Groups of several sizes, each of its own task, whose trajectories all say something else: first the answer."""
    tasks = sample_tasks(subject, len(SIZES))
    return [
        group_of(task, [f"{task.answer or 'yes'}{' no' * wrong}" for wrong in range(size)], number=number)
        for number, (task, size) in enumerate(zip(tasks, SIZES, strict=True))
    ]


def group_of(task: Task, texts: Several[str], *, number: int = 0, statuses: Several[Status] | None = None) -> Group:
    """Attempts at the task that answered `texts`, in any language; their tokens are made up."""
    made = make_group(["ok"] * len(texts), number=number, statuses=statuses)
    trajectories = (replace(t, task_id=task.id, text=text) for t, text in zip(made.trajectories, texts, strict=True))
    return Group(task, number, 0, tuple(trajectories))


def _ascii(text: Any) -> Any:
    if isinstance(text, str):
        return text.encode("ascii", "replace").decode().replace("\0", " ") or "?"
    return tuple({**message, "content": _ascii(str(message.get("content") or "?"))} for message in text)


def snapshot(thing: Any) -> Any:
    """Everything in it, as text that can be compared: what travels compares by identity."""
    if hasattr(thing, "tobytes"):
        return (str(thing.dtype), thing.shape, thing.tobytes())
    if isinstance(thing, dict):
        return [(repr(key), snapshot(value)) for key, value in thing.items()]
    if isinstance(thing, tuple | list):
        return [snapshot(each) for each in thing]
    if hasattr(thing, "__dataclass_fields__"):
        return [(name, snapshot(getattr(thing, name))) for name in thing.__dataclass_fields__]
    return repr(thing)


def _draw(data: Data, count: int) -> list[Task]:
    tasks: dict[str, Task] = {}
    for _ in range(20 * count):
        draw = data.draw()
        if draw is None or len(tasks) == count:
            break
        tasks[draw.task.id] = draw.task
    found = list(tasks.values())
    return [found[place % len(found)] for place in range(count)]
