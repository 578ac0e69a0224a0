"""Makers of what travels: tasks, sequences, trajectories, groups and batches that agree with themselves.

Texts become tokens by `CharRenderer`, log-probs are those of `scripted_logprob`: all of it is a function of the
arguments, so two calls make equal things.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Several
from typing import Any

import numpy as np

from miles_core.testing.fakes.char_renderer import STOP, CharRenderer
from miles_core.testing.fakes.engine_log import scripted_logprob
from miles_core.types.batch import Batch, Row
from miles_core.types.sequence import NO_VERSION, FloatArray, Sequence, Span
from miles_core.types.task import Task
from miles_core.types.trajectory import Group, Status, Trajectory

Turns = str | Several[str]


def make_task(prompt: str = "1+2=", answer: str | None = "3", *, id: str = "task", **metadata: Any) -> Task:
    """A task; other arguments become its metadata."""
    return Task(id, prompt, answer, metadata)


def make_sequence(
    prompt: str = "1+2=",
    answer: Turns = "3",
    *,
    version: int = 1,
    versions: Several[int] | None = None,
    temperature: float = 1.0,
    demonstration: bool = False,
    engine: str = "engine-0",
    request: str = "request",
) -> Sequence:
    """One row: the prompt (masked), then what was sampled, ended by the stop token.

    answer         one text, or one for each turn: between two turns stands a masked newline
    versions       the weight version of each turn (default: `version` for all)
    demonstration  nobody sampled it: no log-probs, versions or spans
    """
    renderer = CharRenderer()
    turns = (answer,) if isinstance(answer, str) else tuple(answer)
    tokens = renderer.render(({"role": "user", "content": prompt},)).tolist()
    spans: list[Span] = []
    for turn, text in enumerate(turns):
        if turn:
            tokens += renderer.encode("\n").tolist()
        start = len(tokens)
        tokens += [*renderer.encode(text).tolist(), STOP]
        own = versions[turn] if versions is not None else version
        spans.append(Span(start, len(tokens), own, engine, f"{request}/{turn}", turn, temperature))
    return _sequence(tokens, spans, demonstration)


def make_trajectory(
    text: Turns = "3",
    reward: float | None = None,
    *,
    task: Task | None = None,
    index: int = 0,
    id: str | None = None,
    status: Status = Status.COMPLETED,
    version: int = 1,
    metadata: Mapping[str, Any] | None = None,
    sequences: Several[Sequence] | None = None,
) -> Trajectory:
    """One attempt that answered `text` (several texts: one for each turn). `sequences` replaces the one row."""
    task = task or make_task()
    id = id or f"{task.id}/{index}"
    if sequences is None:
        prompt = task.prompt if isinstance(task.prompt, str) else str(task.prompt[-1]["content"])
        empty = status in (Status.FAILED, Status.ABORTED)
        sequences = () if empty else (make_sequence(prompt, text, version=version, request=id),)
    last = text if isinstance(text, str) else text[-1]
    return Trajectory(id, task.id, index, tuple(sequences), status, last, reward, {}, dict(metadata or {}))


def make_group(
    texts: Several[Turns] = ("3", "4"),
    rewards: Several[float | None] | None = None,
    *,
    task: Task | None = None,
    number: int = 0,
    draw: int = 0,
    version: int = 1,
    statuses: Several[Status] | None = None,
) -> Group:
    """The attempts at one task that answered `texts`. `rewards` (default: none has a verdict) and `statuses` have one
    entry for each text. Trajectories are named `g<number>/<index>`."""
    task = task or make_task()
    rewards = [None] * len(texts) if rewards is None else rewards
    statuses = [Status.COMPLETED] * len(texts) if statuses is None else statuses
    trajectories = tuple(
        make_trajectory(text, reward, task=task, index=index, id=f"g{number}/{index}", status=status, version=version)
        for index, (text, reward, status) in enumerate(zip(texts, rewards, statuses, strict=True))
    )
    return Group(task, number, draw, trajectories)


def make_batch(
    groups: Several[Group],
    advantages: Mapping[str, Several[FloatArray] | float] | float | None = None,
    *,
    step: int = 0,
) -> Batch:
    """The rows of the groups. `advantages`: by trajectory id, arrays as an advantage component gives them or one
    number for all of its tokens; or one number for everything (default: the trajectory's reward, 0 without one)."""
    rows = [
        Row(sequence, _advantages(trajectory, place, advantages), trajectory.id, group.id)
        for group in groups
        for trajectory in group.trajectories
        for place, sequence in enumerate(trajectory.sequences)
    ]
    return Batch(step, tuple(rows))


def _advantages(
    trajectory: Trajectory, place: int, given: Mapping[str, Several[FloatArray] | float] | float | None
) -> FloatArray:
    sequence = trajectory.sequences[place]
    if isinstance(given, Mapping):
        own = given[trajectory.id]
        if not isinstance(own, int | float):
            return own[place]
    else:
        own = (trajectory.reward or 0.0) if given is None else given
    return np.where(sequence.sampled, np.float32(own), np.float32(0)).astype(np.float32)


def _sequence(tokens: Several[int], spans: Several[Span], demonstration: bool) -> Sequence:
    n = len(tokens)
    sampled = np.zeros(n, np.bool_)
    versions = np.full(n, NO_VERSION, np.int32)
    logprobs = np.zeros(n, np.float32)
    for span in spans:
        sampled[span.start : span.stop] = True
        versions[span.start : span.stop] = span.version
        for place in range(span.start, span.stop):
            logprobs[place] = scripted_logprob(span.version, place - span.start, tokens[place])
    array = np.array(tokens, np.int32)
    if demonstration:
        return Sequence(array, sampled, None, np.full(n, NO_VERSION, np.int32))
    return Sequence(array, sampled, logprobs, versions, tuple(spans))
