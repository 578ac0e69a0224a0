"""An evaluation of two held-out tasks, and what it refuses."""

import asyncio
from collections.abc import Sequence

import pytest
from miles_core import Attempt, BuildContext, EvaluationContext, Group, Sampling, Score, Trajectory
from miles_core.testing import TwoTasks, make_trajectory
from pydantic import ValidationError

from miles_plugin_xyz.evaluator import XyzEvaluator
from miles_plugin_xyz.options import XyzOptions


def context(recorded: list[Group]) -> EvaluationContext:
    """Attempts whose index is below 2 are right, at the first task only."""

    async def generate(attempt: Attempt) -> Trajectory:
        right = attempt.task.id == TwoTasks.HELD_OUT[0].id and attempt.index < 2
        return make_trajectory("right" if right else "wrong", task=attempt.task, index=attempt.index, version=3)

    async def score(group: Group) -> Group:
        judged = [t.judged(float(t.text == "right"), {"r": Score(1.0)}) for t in group.trajectories]
        return group.replacing(tuple(judged))

    def record(groups: Sequence[Group]) -> None:
        recorded.extend(groups)

    return EvaluationContext(TwoTasks(), generate, score, Sampling(), seed=1, record=record)


def made() -> XyzEvaluator:
    options = XyzOptions(attempts=4, k=2)
    return XyzEvaluator(options, BuildContext(seed=1, name="evaluator"))


def test_each_task_gets_its_score_under_the_version_that_was_measured() -> None:
    recorded: list[Group] = []
    evaluation = asyncio.run(made().evaluate(5, 3, context(recorded)))
    assert evaluation.scores == pytest.approx({"held-1": 5 / 6, "held-2": 0.0})
    assert (evaluation.step, evaluation.version) == (5, 3)
    assert [len(group.trajectories) for group in recorded] == [4, 4]


def test_answers_of_other_weights_are_no_score() -> None:
    with pytest.raises(Exception, match="other weights than version 4"):
        asyncio.run(made().evaluate(5, 4, context([])))


def test_k_above_the_attempts_is_refused() -> None:
    with pytest.raises(ValidationError, match="more than the 2 attempts"):
        XyzOptions(attempts=2, k=3)
