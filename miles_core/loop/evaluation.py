"""The `shared` evaluator: held-out tasks on the engines that also roll out, under the weights that they run now."""

from __future__ import annotations

from dataclasses import replace

from pydantic import Field, PositiveInt

from miles_core.contracts.component import BuildContext
from miles_core.contracts.observing import Evaluation, EvaluationContext
from miles_core.contracts.options import Options
from miles_core.contracts.rollout import Attempt, Data
from miles_core.errors import RunError
from miles_core.rollout.together import together
from miles_core.types.task import Task
from miles_core.types.trajectory import Group


class SharedEvaluatorOptions(Options):
    """What to measure and how often. The first and the last evaluation always happen."""

    name: str = Field(default="held-out", description="the evaluation's name in metrics and reports")
    every: int = Field(default=0, ge=0, description="steps between evaluations; 0: only before and after training")
    tasks: PositiveInt = Field(default=128, description="held-out tasks")
    attempts: PositiveInt = Field(default=1, description="attempts at each task")
    temperature: float = Field(default=0.0, ge=0, description="0 is greedy")
    max_new_tokens: int | None = Field(default=None, gt=0, description="as in the rollout when absent")
    score: str | None = Field(default=None, description="name of the reward to report; the total reward when absent")


class SharedEvaluator:
    """See `contracts.observing.Evaluator`."""

    def __init__(self, options: SharedEvaluatorOptions, context: BuildContext) -> None:
        self._options = options

    @property
    def name(self) -> str:
        return self._options.name

    def due(self, step: int, last: bool) -> bool:
        return step == 0 or last or (self._options.every > 0 and step % self._options.every == 0)

    def tasks(self, data: Data) -> list[Task]:
        return data.held_out(self._options.tasks)

    async def evaluate(self, step: int, version: int, context: EvaluationContext) -> Evaluation:
        tasks = self.tasks(context.data)
        groups = await together(self._attempt(number, task, context) for number, task in enumerate(tasks))
        context.record(groups)
        scores = {group.task.id: self._score(group) for group in groups}
        self._check_versions(groups, version)
        return Evaluation(self.name, version, step, scores)

    async def _attempt(self, number: int, task: Task, context: EvaluationContext) -> Group:
        limit = self._options.max_new_tokens or context.sampling.max_new_tokens
        sampling = replace(context.sampling, temperature=self._options.temperature, max_new_tokens=limit)
        purpose = f"evaluation/{self.name}"
        attempts = [
            Attempt(f"e{number}.{index}", task, number, 0, index, purpose, sampling, context.seed)
            for index in range(self._options.attempts)
        ]
        trajectories = await together(context.generate(attempt) for attempt in attempts)
        return await context.score(Group(task, number, 0, tuple(trajectories)))

    def _score(self, group: Group) -> float:
        """Mean over the attempts; an attempt without a verdict is an error here, never a 0."""
        values = []
        for trajectory in group.trajectories:
            chosen = self._options.score
            if chosen is None:
                value = trajectory.reward
            else:
                score = trajectory.scores.get(chosen)
                value = None if score is None else score.value
            if value is None:
                raise RunError(f"evaluation {self.name!r} has no {chosen or 'reward'} for task {group.task.id!r}")
            values.append(value)
        return sum(values) / len(values)

    def _check_versions(self, groups: list[Group], version: int) -> None:
        found = {span.version for g in groups for t in g.trajectories for s in t.sequences for span in s.spans}
        if found - {version}:
            raise RunError(f"evaluation {self.name!r} of version {version} was answered by versions {sorted(found)}")
