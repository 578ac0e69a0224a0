"""One evaluation, watched: whatever an evaluator does, it ends as a score of one weight version, or as a reason."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Coroutine
from collections.abc import Sequence as Several
from dataclasses import dataclass, field, replace
from typing import Any

from miles_core.contracts.blame import place_of, text_of
from miles_core.contracts.observing import Evaluation, EvaluationContext, Evaluator
from miles_core.contracts.rollout import Attempt
from miles_core.errors import MilesError, RunError
from miles_core.types.estimate import Estimate
from miles_core.types.trajectory import Trajectory

log = logging.getLogger(__name__)

Generate = Callable[[Attempt], Coroutine[Any, Any, Trajectory]]

GRACE = 5.0
"""Seconds that a cancelled evaluation gets for cleaning up; then it is left to itself."""

SHOWN = 3
TAKEN = (".", "..", "score", "scores")
ROUNDED = 1e-6


class GivenUp(Exception):
    """An evaluation that is not to go on; its text is the reason."""


@dataclass(slots=True)
class Versions:
    """Which weights answered the attempts of an evaluation of `wanted`."""

    wanted: int
    attempts: int = 0
    mixed: int = 0
    found: set[int] = field(default_factory=set)

    def around(self, generate: Generate) -> Generate:
        """`generate`, looked at."""

        async def watched(attempt: Attempt) -> Trajectory:
            trajectory = await generate(attempt)
            versions = {span.version for row in trajectory.sequences for span in row.spans}
            self.attempts += 1
            self.mixed += bool(versions - {self.wanted})
            self.found |= versions
            return trajectory

        return watched

    def check(self) -> None:
        """Raises RunError when any attempt was answered by other weights."""
        if self.mixed:
            raise RunError(
                f"{self.mixed} of {self.attempts} attempts were answered by other weights than version {self.wanted}: "
                f"versions {', '.join(map(str, sorted(self.found)))}"
            )


async def measure(
    evaluator: Evaluator, step: int, version: int, context: EvaluationContext, versions: Versions, limit: float
) -> Evaluation:
    """What the evaluator found within `limit` seconds. Raises what it raised, GivenUp, or RunError saying what is wrong
    with what it returned."""
    found = await within(evaluator.evaluate(step, version, context), limit)
    if isinstance(found, Evaluation) and found.skipped:
        return found
    versions.check()
    return checked(found, evaluator, step, version, context)


async def within(work: Coroutine[Any, Any, Any], limit: float) -> Any:
    """The result. Raises what the work raised, as an Exception, or GivenUp after `limit` seconds. Work that ignores
    being cancelled is left."""
    task = asyncio.ensure_future(_contained(work))
    try:
        done, _ = await asyncio.wait({task}, timeout=limit)
    except asyncio.CancelledError:
        await _end(task)
        raise
    if not done:
        ended = await _end(task)
        raise GivenUp(f"it took longer than its time limit of {limit:g} s" + ("" if ended else ", and goes on"))
    if task.cancelled():
        raise GivenUp("it was cancelled, by itself")
    return task.result()


async def _contained(work: Coroutine[Any, Any, Any]) -> Any:
    """A plugin may raise anything; what is no Exception would end more than its task."""
    try:
        return await work
    except (KeyboardInterrupt, asyncio.CancelledError):
        raise
    except Exception:
        raise
    except BaseException as error:
        raise RunError(f"it raised {text_of(error)}") from error


async def _end(task: asyncio.Future[Any]) -> bool:
    """Cancel, and wait for a while. Whether it ended."""
    task.cancel()
    done, _ = await asyncio.wait({task}, timeout=GRACE)
    if done:
        if not task.cancelled():
            task.exception()  # seen
        return True
    log.warning("an evaluation goes on although it was cancelled; it is left")
    return False


def checked(found: Any, evaluator: Evaluator, step: int, version: int, context: EvaluationContext) -> Evaluation:
    """The evaluation itself. Raises RunError with everything that is wrong with it."""
    if not isinstance(found, Evaluation):
        raise RunError(f"it returned {found!r:.60}, expected an Evaluation")
    faults = []
    if (found.name, found.step, found.version) != (evaluator.name, step, version):
        faults.append(
            f"it is filed under {found.name!r}, step {found.step}, version {found.version}; asked for were "
            f"{evaluator.name!r}, step {step}, version {version}"
        )
    faults += _names([part.name for part in found.parts])
    measured = found.parts or (found,)
    for each in measured:
        faults += _numbers(each, f"dataset {each.name!r}: " if found.parts else "")
    if not found.parts and found.scores:
        faults += _tasks(found, {task.id for task in evaluator.tasks(context.data)})
    if faults:
        raise RunError("; ".join(faults))
    return plain(found)


def plain(found: Evaluation) -> Evaluation:
    """With Python's own numbers, as a record needs them."""
    scores = {task: float(value) for task, value in found.scores.items()}
    figures = {name: plain_estimate(each) for name, each in found.figures.items()}
    total = None if found.total is None else plain_estimate(found.total)
    return replace(found, scores=scores, figures=figures, total=total, parts=tuple(map(plain, found.parts)))


def plain_estimate(estimate: Estimate) -> Estimate:
    """An end of an interval that is not finite is not known."""
    low, high = (
        float(each) if each is not None and _is_finite(each) else None for each in (estimate.low, estimate.high)
    )
    return Estimate(float(estimate.mean), low, high, int(estimate.n))


def _numbers(found: Evaluation, where: str) -> list[str]:
    if not found.scores and found.total is None and not found.skipped:
        return [f"{where}there are no scores"]
    numbers: list[tuple[str, Any]] = [(f"the score of task {task!r}", value) for task, value in found.scores.items()]
    numbers += [("the total", found.total.mean)] if found.total else []
    numbers += [(name, figure.mean) for name, figure in found.figures.items()]
    faults = [f"{where}{what} is {value!r}" for what, value in numbers if not _is_finite(value)]
    estimates = [("the total", found.total)] if found.total else []
    for what, each in [*estimates, *found.figures.items()]:
        faults += [f"{where}{fault}" for fault in _interval(what, each)]
    return faults[:SHOWN]


def _interval(what: str, told: Estimate) -> list[str]:
    """What is wrong with an interval whose ends are known; a rounded end may be beside the mean by as much."""
    mean, low, high = told.mean, told.low, told.high
    if low is None or high is None or not all(map(_is_finite, (mean, low, high))):
        return []
    if low > high:
        return [f"the interval of {what} is from {low:g} to {high:g}: its low end is above its high end"]
    slack = ROUNDED * max(1.0, abs(mean))
    if not low - slack <= mean <= high + slack:
        return [f"{what} is {mean:g}, outside of its own interval from {low:g} to {high:g}"]
    return []


def _names(names: Several[str]) -> list[str]:
    """A dataset is filed under `<evaluation>/<dataset>`, beside the evaluation's own `score`."""
    return [
        f"a dataset is named {name!r}: a name is not empty, has no '/' or control character, and is none of "
        f"{', '.join(map(repr, TAKEN))}"
        for name in names
        if not name.strip() or "/" in name or not name.isprintable() or name in TAKEN
    ][:SHOWN] + [f"{name!r} names several datasets" for name in sorted({n for n in names if names.count(n) > 1})]


def _is_finite(value: Any) -> bool:
    try:
        return not isinstance(value, bool | str) and math.isfinite(value)
    except (TypeError, OverflowError):
        return False


def _tasks(found: Evaluation, asked: set[str]) -> list[str]:
    """An evaluator without tasks of the run's own may score any."""
    if not asked:
        return []
    faults = []
    if other := [task for task in found.scores if task not in asked]:
        faults.append(f"{len(other)} scores are of tasks that were not asked for: {_some(other)}")
    if lacking := [task for task in asked if task not in found.scores]:
        faults.append(f"{len(lacking)} of {len(asked)} tasks have no score: {_some(sorted(lacking))}")
    return faults


def _some(names: Several[Any]) -> str:
    return ", ".join(repr(name) for name in names[:SHOWN]) + (", …" if len(names) > SHOWN else "")


def reason_of(error: BaseException) -> str:
    """Why there is no score, in words: for what was raised, class, text and place."""
    if isinstance(error, GivenUp):
        return str(error)
    place = "" if isinstance(error, MilesError) else place_of(error)
    return text_of(error) + (f" ({place})" if place else "")
