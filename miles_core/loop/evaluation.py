"""The `shared` and `fleet` evaluators: held-out tasks on the engines that also roll out, or on some that only evaluate.

Both make the same attempts: where they go, and that one weight version answers all of them, is the loop's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, NonNegativeInt, PositiveInt, model_validator

from miles_core.contracts.component import BuildContext
from miles_core.contracts.observing import Evaluation, EvaluationContext
from miles_core.contracts.options import EvaluatorOptions, Options
from miles_core.contracts.rollout import Attempt, Data
from miles_core.errors import RunError
from miles_core.observe.statistics import mean_and_interval
from miles_core.rollout.file_data import FileData, FileDataOptions
from miles_core.rollout.together import together
from miles_core.types.estimate import Estimate, pass_at_k
from miles_core.types.task import Task
from miles_core.types.trajectory import Group, Status, Trajectory


class DatasetOptions(Options):
    """One of several datasets of an evaluation. What is absent is the evaluation's own."""

    name: str = Field(pattern=r"^[^/\s][^/]*$", description="its name in metrics: `evaluation/<evaluation>/<name>`")
    path: Path = Field(description="a .jsonl or .parquet file of tasks, as of the `file` data")
    prompt: str = Field(default="prompt", description="column of the prompt as text")
    messages: str = Field(default="messages", description="column of the prompt as chat messages; wins over `prompt`")
    answer: str = Field(default="answer", description="column of the label")
    id: str = Field(default="id", description="column of the id; rows without one are numbered by line")
    system: str | None = Field(default=None, description="a system message to put before every prompt")
    tasks: PositiveInt | None = Field(default=None, description="the first so many; all when absent")
    attempts: PositiveInt | None = Field(default=None, description="attempts at each task")
    temperature: float | None = Field(default=None, ge=0, description="0 is greedy")
    max_new_tokens: PositiveInt | None = Field(default=None, description="tokens of one answer at most")
    score: str | None = Field(default=None, description="name of the reward to report")
    threshold: float | None = Field(default=None, description="score from which an attempt is right")
    pass_at: tuple[PositiveInt, ...] | None = Field(default=None, description="the k of the pass@k to report")


class HeldOutOptions(EvaluatorOptions):
    """What to measure and how often. The first and the last evaluation always happen."""

    tasks: PositiveInt = Field(default=128, description="held-out tasks of the recipe's data")
    attempts: PositiveInt = Field(default=1, description="attempts at each task")
    temperature: float = Field(default=0.0, ge=0, description="0 is greedy")
    max_new_tokens: int | None = Field(default=None, gt=0, description="as in the rollout when absent")
    score: str | None = Field(default=None, description="name of the reward to report; the total reward when absent")
    threshold: float = Field(default=1.0, description="score from which an attempt is right, for pass@k")
    pass_at: tuple[PositiveInt, ...] = Field(
        default=(), description="report pass@k for these k: the chance that one of k attempts is right"
    )
    concurrent: PositiveInt | None = Field(default=None, description="attempts at once; absent: all")
    datasets: tuple[DatasetOptions, ...] = Field(
        default=(),
        description="measure these files, each under its own name, instead of the data's held-out tasks",
    )

    @model_validator(mode="after")
    def _can_be_measured(self) -> Self:
        asked = [(self.name, self.attempts, self.pass_at)] if not self.datasets else []
        for each in self.datasets:
            ks = self.pass_at if each.pass_at is None else each.pass_at
            asked.append((each.name, each.attempts or self.attempts, ks))
        for name, attempts, ks in asked:
            if too_many := [k for k in ks if k > attempts]:
                raise ValueError(f"pass@{too_many[0]} of {name!r} needs as many attempts, there are {attempts}")
        names = [each.name for each in self.datasets]
        if len(set(names)) < len(names):
            raise ValueError("two datasets have the same name")
        return self

    def card(self) -> Mapping[str, str]:
        figures = ["mean score", *(f"pass@{k}" for k in self.pass_at)]
        of = f"{len(self.datasets)} datasets" if self.datasets else f"{self.tasks} held-out tasks"
        return {"measures": f"{', '.join(figures)} of {of}, {_counted(self.attempts, 'attempt')} each"}


class SharedEvaluatorOptions(HeldOutOptions):
    """Options of the `shared` evaluator."""

    beside: bool | None = Field(
        default=None,
        description="training goes on meanwhile, up to the next update of the weights; absent: where the schedule runs "
        "ahead without rounds (`async`)",
    )
    on_update: Literal["finish", "skip"] = Field(
        default="finish",
        description="when new weights are due before it ended: they wait for it, or it is given up, with the reason",
    )


class FleetEvaluatorOptions(HeldOutOptions):
    """Options of the `fleet` evaluator."""

    name: str = Field(
        default="fleet", pattern=r"^[^/\s][^/]*$", description="the evaluation's name in metrics and reports"
    )
    replicas: PositiveInt = Field(default=1, description="engines that only evaluate")
    queue: NonNegativeInt = Field(
        default=1, description="evaluations that may wait for an earlier one, with exported weights; others are skipped"
    )


@dataclass(frozen=True, slots=True)
class _Set:
    """One dataset, with how it is measured. `part` is its name; "" for the data's own held-out tasks."""

    part: str
    purpose: str
    tasks: tuple[Task, ...]
    attempts: int
    temperature: float
    max_new_tokens: int | None
    score: str | None
    threshold: float
    pass_at: tuple[int, ...]


class HeldOutEvaluator:
    """See `contracts.observing.Evaluator`."""

    def __init__(self, options: HeldOutOptions, context: BuildContext) -> None:
        self._options = options
        self._files = [(each, _tasks_of(each, context)) for each in options.datasets]

    @property
    def name(self) -> str:
        return self._options.name

    @property
    def datasets(self) -> tuple[str, ...]:
        """The names of its parts."""
        return tuple(each.name for each in self._options.datasets)

    def due(self, step: int, last: bool) -> bool:
        return self._options.is_due(step, last)

    def tasks(self, data: Data) -> list[Task]:
        return [task for each in self._sets(data) for task in each.tasks]

    async def evaluate(self, step: int, version: int, context: EvaluationContext) -> Evaluation:
        sets = self._sets(context.data)
        places = asyncio.Semaphore(self._options.concurrent) if self._options.concurrent else None
        work = [(each, task) for each in sets for task in each.tasks]
        groups = await together(self._attempt(n, each, task, context, places) for n, (each, task) in enumerate(work))
        context.record(groups)
        _check_versions(self.name, groups, version)
        made: dict[str, list[Group]] = {each.part: [] for each in sets}
        for (each, _), group in zip(work, groups, strict=True):
            made[each.part].append(group)
        found = [self._evaluation(each, made[each.part], step, version) for each in sets]
        return Evaluation(self.name, version, step, parts=tuple(found)) if self._files else found[0]

    def _sets(self, data: Data) -> list[_Set]:
        options, purpose = self._options, f"evaluation/{self.name}"
        whole = _Set(
            "", purpose, (), options.attempts, options.temperature, options.max_new_tokens, options.score,
            options.threshold, options.pass_at,
        )  # fmt: skip
        if not self._files:
            return [replace(whole, tasks=tuple(data.held_out(options.tasks)))]
        names = ("attempts", "temperature", "max_new_tokens", "score", "threshold", "pass_at")
        return [
            replace(
                whole,
                part=each.name,
                purpose=f"{purpose}/{each.name}",
                tasks=tasks,
                **{name: getattr(each, name) for name in names if getattr(each, name) is not None},
            )
            for each, tasks in self._files
        ]

    async def _attempt(
        self, number: int, each: _Set, task: Task, context: EvaluationContext, places: asyncio.Semaphore | None
    ) -> Group:
        limit = each.max_new_tokens or context.sampling.max_new_tokens
        sampling = replace(context.sampling, temperature=each.temperature, max_new_tokens=limit)
        attempts = [
            Attempt(f"e{number}.{index}", task, number, 0, index, each.purpose, sampling, context.seed)
            for index in range(each.attempts)
        ]

        async def one(attempt: Attempt) -> Trajectory:
            async with AsyncExitStack() as stack:
                if places is not None:
                    await stack.enter_async_context(places)
                return await context.generate(attempt)

        trajectories = await together(one(attempt) for attempt in attempts)
        return await context.score(Group(task, number, 0, tuple(trajectories)))

    def _evaluation(self, each: _Set, groups: list[Group], step: int, version: int) -> Evaluation:
        values = {group.task.id: self._values(each, group) for group in groups}
        scores = {task: sum(some) / len(some) for task, some in values.items()}
        figures: dict[str, Estimate] = {}
        for k in each.pass_at:
            right = (pass_at_k(len(v), sum(x >= each.threshold for x in v), k) for v in values.values())
            figures[f"pass@{k}"] = mean_and_interval(right)
        figures["truncated"] = mean_and_interval(
            sum(t.status is Status.TRUNCATED for t in g.trajectories) / len(g.trajectories) for g in groups
        )
        figures["tokens"] = mean_and_interval(
            sum(t.sampled_count for t in g.trajectories) / len(g.trajectories) for g in groups
        )
        return Evaluation(each.part or self.name, version, step, scores, figures=figures)

    def _values(self, each: _Set, group: Group) -> list[float]:
        """One for each attempt; an attempt without a verdict is an error here, never a 0."""
        values: list[float] = []
        for trajectory in group.trajectories:
            value = trajectory.reward
            if each.score is not None:
                score = trajectory.scores.get(each.score)
                value = None if score is None else score.value
            if value is None:
                failure = trajectory.metadata.get("error", "")
                raise RunError(
                    f"evaluation {self.name!r} has no {each.score or 'reward'} for task {group.task.id!r}"
                    + (f": {failure}" if failure else "")
                )
            values.append(value)
        return values


def _counted(count: int, what: str) -> str:
    return f"{count} {what}{'s' if count > 1 else ''}"


def _tasks_of(dataset: DatasetOptions, context: BuildContext) -> tuple[Task, ...]:
    """Raises RequestError with every fault of the file."""
    columns = {name: getattr(dataset, name) for name in ("prompt", "messages", "answer", "id", "system")}
    data = FileData(FileDataOptions(path=dataset.path, held_out=dataset.path, **columns), context)
    tasks = data.held_out(dataset.tasks or 2**62)
    return tuple(tasks)


def _check_versions(name: str, groups: list[Group], version: int) -> None:
    found = {span.version for g in groups for t in g.trajectories for s in t.sequences for span in s.spans}
    if found - {version}:
        raise RunError(f"evaluation {name!r} of version {version} was answered by versions {sorted(found)}")
