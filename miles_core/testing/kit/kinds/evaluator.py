"""An evaluator: scores of held-out tasks, filed under the weights that they measured; a failure is never a score."""

from __future__ import annotations

import math
from collections.abc import Sequence as Several
from dataclasses import dataclass, field

from miles_core.contracts.observing import Evaluation, EvaluationContext, Evaluator
from miles_core.contracts.rollout import Attempt
from miles_core.errors import RunError
from miles_core.testing.fakes.makers import make_trajectory
from miles_core.testing.fakes.two_tasks import TwoTasks
from miles_core.testing.kit.check import Grade, check, expect
from miles_core.testing.kit.living import nothing_left
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.types.sampling import Sampling
from miles_core.types.trajectory import Group, Trajectory

STEP, VERSION, STEPS = 7, 3, 60


@dataclass(slots=True)
class _Bench:
    """Attempts of the version `answers_as`, rewarded by 1 or by nobody."""

    answers_as: int = VERSION
    reward: float | None = 1.0
    error: Exception | None = None
    attempts: list[Attempt] = field(default_factory=list)
    recorded: list[Group] = field(default_factory=list)

    def context(self) -> EvaluationContext:
        return EvaluationContext(TwoTasks(), self.generate, self.score, Sampling(max_new_tokens=8), 1, self.record)

    async def generate(self, attempt: Attempt) -> Trajectory:
        self.attempts.append(attempt)
        return make_trajectory("7", task=attempt.task, index=attempt.index, id=attempt.id, version=self.answers_as)

    async def score(self, group: Group) -> Group:
        if self.error is not None:
            raise self.error
        return group.replacing(tuple(t.judged(self.reward, {}) for t in group.trajectories))

    def record(self, groups: Several[Group]) -> None:
        self.recorded += groups


@check("evaluator", Grade.GOLD, "it is due at times that depend on the step alone, and at some time at all")
def due(subject: ComponentSubject) -> None:
    evaluator, other = subject.build(), subject.build()
    times = [(step, last) for step in range(STEPS) for last in (False, True)]
    answers = [evaluator.due(*time) for time in times]
    expect(all(isinstance(each, bool) for each in answers), "due gave no bool", "return True or False")
    expect(any(answers), f"it is never due in {STEPS} steps", "be due at step 0, at the last one, or in between")
    backwards = [other.due(*time) for time in reversed(times)][::-1]
    expect(answers == backwards, "due depends on what was asked before", "answer from step and last alone")


@check("evaluator", Grade.GOLD, "its scores are filed under its name, the step and the version that it was asked for")
async def files_scores(subject: ComponentSubject) -> None:
    evaluator, bench = subject.build(), _Bench()
    with nothing_left("an evaluation"):
        found: Evaluation = await evaluator.evaluate(STEP, VERSION, bench.context())
    expect(isinstance(found, Evaluation), f"evaluate returned {found!r:.100}", "return a miles_core.Evaluation")
    filed, wanted = (found.name, found.version, found.step), (evaluator.name, VERSION, STEP)
    expect(
        filed == wanted, f"filed under {filed}, asked for {wanted}", "file name, version and step as they were given"
    )
    held = {task.id for task in evaluator.tasks(TwoTasks())}
    expect(held and held <= {t.id for t in TwoTasks.HELD_OUT}, f"its tasks are {sorted(held)}", "take data.held_out")
    expect(set(found.scores) == held, f"scores of {sorted(found.scores)}", "one score for each held-out task")
    finite = all(isinstance(value, int | float) and math.isfinite(value) for value in found.scores.values())
    expect(finite, f"scores: {dict(found.scores)}", "a score is a finite number")
    expect(bench.recorded, "its groups were not recorded", "call context.record: they are kept with the run")


@check("evaluator", Grade.GOLD, "its randomness is apart from that of training")
async def own_noise(subject: ComponentSubject) -> None:
    evaluator, bench = subject.build(), _Bench()
    await evaluator.evaluate(STEP, VERSION, bench.context())
    purposes = {attempt.purpose for attempt in bench.attempts}
    training = {"", "rollout", "train"} & purposes
    expect(not training, f"its attempts have the purpose {sorted(purposes)}", 'name it, e.g. f"evaluation/{self.name}"')
    keys = [attempt.noise() for attempt in bench.attempts]
    expect(len(set(keys)) == len(keys), "two attempts have the same noise", "number the attempts at a task by index")


@check("evaluator", Grade.GOLD, "answers of other weights, a failed reward and a missing verdict never become a score")
async def failures_are_no_scores(subject: ComponentSubject) -> None:
    evaluator = subject.build()
    for bench, what in (
        (_Bench(answers_as=VERSION - 1), "other weights answered"),
        (_Bench(error=RunError("the reward broke")), "the reward raised"),
        (_Bench(reward=None), "there was no verdict"),
    ):
        found = await _evaluated(evaluator, bench)
        if found is None or found.skipped:
            continue
        expect(not found.scores, f"{what}, and its scores are {dict(found.scores)}", "raise, or say so in `skipped`")


async def _evaluated(evaluator: Evaluator, bench: _Bench) -> Evaluation | None:
    """None when it raised, as it may."""
    try:
        return await evaluator.evaluate(STEP, VERSION, bench.context())
    except Exception:
        return None
