"""pass@k on the engines that also roll out.

To run on engines of its own, while training goes on, the component declares `own-engines`: nothing changes here.
"""

import asyncio

from miles_core import Attempt, BuildContext, Data, Evaluation, EvaluationContext, Group, RunError, Task, pass_at_k

from miles_plugin_xyz.options import XyzOptions


class XyzEvaluator:
    """See `miles_core.Evaluator`."""

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self._options = options

    @property
    def name(self) -> str:
        return self._options.name

    def due(self, step: int, last: bool) -> bool:
        return self._options.is_due(step, last)

    def tasks(self, data: Data) -> list[Task]:
        return data.held_out(self._options.tasks)

    async def evaluate(self, step: int, version: int, context: EvaluationContext) -> Evaluation:
        tasks = self.tasks(context.data)
        groups = await asyncio.gather(*(self._try(number, task, context) for number, task in enumerate(tasks)))
        context.record(groups)
        for group in groups:
            self._check_version(group, version)
        return Evaluation(self.name, version, step, {group.task.id: self._score(group) for group in groups})

    async def _try(self, number: int, task: Task, context: EvaluationContext) -> Group:
        purpose = f"evaluation/{self.name}"  # other noise than in training
        attempts = [
            Attempt(f"e{number}.{index}", task, number, 0, index, purpose, context.sampling, context.seed)
            for index in range(self._options.attempts)
        ]
        trajectories = await asyncio.gather(*(context.generate(attempt) for attempt in attempts))
        return await context.score(Group(task, number, 0, tuple(trajectories)))

    def _score(self, group: Group) -> float:
        """An attempt without a verdict is an error, never a wrong answer."""
        rewards = [trajectory.reward for trajectory in group.trajectories]
        verdicts = [reward for reward in rewards if reward is not None]
        if len(verdicts) < len(rewards):
            raise RunError(f"an attempt at task {group.task.id!r} has no reward")
        return pass_at_k(len(verdicts), sum(reward >= self._options.threshold for reward in verdicts), self._options.k)

    def _check_version(self, group: Group, version: int) -> None:
        spans = [span for trajectory in group.trajectories for row in trajectory.sequences for span in row.spans]
        if any(span.version != version for span in spans):
            raise RunError(f"task {group.task.id!r} was answered by other weights than version {version}")
