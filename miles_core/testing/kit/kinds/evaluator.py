"""An evaluator: scores filed under the weights that they measured; a failure is never a score.

One that declares `exported-weights` is given a directory and no engine, and may score tasks of its own.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from pathlib import Path

from miles_core.contracts.capabilities import EXPORTED_WEIGHTS
from miles_core.contracts.observing import Evaluation, EvaluationContext, Evaluator
from miles_core.contracts.rollout import Attempt
from miles_core.errors import RunError
from miles_core.testing.fakes.makers import make_trajectory
from miles_core.testing.fakes.two_tasks import TwoTasks
from miles_core.testing.kit.check import Grade, check, expect
from miles_core.testing.kit.living import cancelled, nothing_left, settle
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
    weights: Path | None = None
    hangs: bool = False
    attempts: list[Attempt] = field(default_factory=list)
    recorded: list[Group] = field(default_factory=list)

    def context(self) -> EvaluationContext:
        sampling = Sampling(max_new_tokens=8)
        return EvaluationContext(TwoTasks(), self.generate, self.score, sampling, 1, self.record, self.weights)

    async def generate(self, attempt: Attempt) -> Trajectory:
        self.attempts.append(attempt)
        if self.hangs:
            await asyncio.Event().wait()
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
    evaluator, bench = subject.build(), _bench(subject)
    with nothing_left("an evaluation"):
        found: Evaluation = await evaluator.evaluate(STEP, VERSION, bench.context())
    expect(isinstance(found, Evaluation), f"evaluate returned {found!r:.100}", "return a miles_core.Evaluation")
    filed, wanted = (found.name, found.version, found.step), (evaluator.name, VERSION, STEP)
    expect(
        filed == wanted, f"filed under {filed}, asked for {wanted}", "file name, version and step as they were given"
    )
    measured = found.parts or (found,)
    numbers = [n for each in measured for n in (*each.scores.values(), *_means(each))]
    finite = all(isinstance(value, int | float) and math.isfinite(value) for value in numbers)
    expect(numbers and finite, f"its scores are {numbers}", "a score is a finite number")
    names = [part.name for part in found.parts]
    expect(len(set(names)) == len(names), f"its parts are named {names}", "name each dataset, and each differently")
    if _exported(subject) or found.parts:
        return
    held = {task.id for task in evaluator.tasks(TwoTasks())}
    expect(held and held <= {t.id for t in TwoTasks.HELD_OUT}, f"its tasks are {sorted(held)}", "take data.held_out")
    expect(set(found.scores) == held, f"scores of {sorted(found.scores)}", "one score for each held-out task")
    expect(bench.recorded, "its groups were not recorded", "call context.record: they are kept with the run")


@check("evaluator", Grade.GOLD, "its randomness is apart from that of training")
async def own_noise(subject: ComponentSubject) -> None:
    evaluator, bench = subject.build(), _bench(subject)
    await evaluator.evaluate(STEP, VERSION, bench.context())
    purposes = {attempt.purpose for attempt in bench.attempts}
    training = {"", "rollout", "train"} & purposes
    expect(not training, f"its attempts have the purpose {sorted(purposes)}", 'name it, e.g. f"evaluation/{self.name}"')
    keys = [attempt.noise() for attempt in bench.attempts]
    expect(len(set(keys)) == len(keys), "two attempts have the same noise", "number the attempts at a task by index")


@check("evaluator", Grade.GOLD, "answers of other weights, a failed reward and a missing verdict never become a score")
async def failures_are_no_scores(subject: ComponentSubject) -> None:
    evaluator = subject.build()
    if _exported(subject):
        found = await _evaluated(evaluator, _Bench())
        told = found is not None and not found.skipped
        expect(not told, "without weights to measure it gave scores", "raise, or say so in `skipped`")
        return
    for bench, what in (
        (_Bench(answers_as=VERSION - 1), "other weights answered"),
        (_Bench(error=RunError("the reward broke")), "the reward raised"),
        (_Bench(reward=None), "there was no verdict"),
    ):
        found = await _evaluated(evaluator, bench)
        if found is None or found.skipped:
            continue
        expect(not found.scores, f"{what}, and its scores are {dict(found.scores)}", "raise, or say so in `skipped`")


@check("evaluator", Grade.GOLD, "it ends soon when it is cancelled, and leaves nothing behind")
async def ends_when_cancelled(subject: ComponentSubject) -> None:
    """Its time is limited, and new weights may end it."""
    evaluator, bench = subject.build(), _bench(subject)
    bench.hangs = True
    with nothing_left("a cancelled evaluation"):
        task = asyncio.ensure_future(evaluator.evaluate(STEP, VERSION, bench.context()))
        await settle()
        if not task.done():
            await cancelled(task, "an evaluation")
        elif not task.cancelled():
            task.exception()


def _exported(subject: ComponentSubject) -> bool:
    return EXPORTED_WEIGHTS in subject.registered.component.capabilities


def _bench(subject: ComponentSubject) -> _Bench:
    """With a directory to measure, for those that ask for one."""
    if not _exported(subject):
        return _Bench()
    weights = subject.folder / "weights"
    weights.mkdir(exist_ok=True)
    (weights / "config.json").write_text("{}")
    return _Bench(weights=weights)


def _means(evaluation: Evaluation) -> list[float]:
    totals = [evaluation.total] if evaluation.total is not None else []
    return [each.mean for each in (*totals, *evaluation.figures.values())]


async def _evaluated(evaluator: Evaluator, bench: _Bench) -> Evaluation | None:
    """None when it raised, as it may."""
    try:
        return await evaluator.evaluate(STEP, VERSION, bench.context())
    except Exception:
        return None
