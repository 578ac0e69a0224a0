"""Broken data sources, buffers, evaluators and trackers: each check catches what it is for."""

from __future__ import annotations

import asyncio
import random
import threading
from dataclasses import replace
from typing import ClassVar

import pytest
from trying import try_check

from miles_core.contracts.observing import Evaluation
from miles_core.contracts.rollout import Draw
from miles_core.errors import RequestError
from miles_core.loop.evaluation import HeldOutEvaluator, SharedEvaluatorOptions
from miles_core.rollout.fifo_buffer import FifoBuffer, FifoOptions
from miles_core.testing.fakes.two_tasks import TwoTasks
from miles_core.testing.kit.check import CheckResult


class Tasks(TwoTasks):
    """Good data."""

    def __init__(self, options, context):
        super().__init__()


class Uncounted(Tasks):
    def draw(self):
        return Draw(super().draw().task, 0)


class Shuffled(Tasks):
    def draw(self):
        draw = super().draw()
        return Draw(random.SystemRandom().choice(self.TASKS), draw.draw)


class Leaking(Tasks):
    HELD_OUT = TwoTasks.TASKS


class SamePrompts(Tasks):
    HELD_OUT = tuple(replace(task, id=f"other-{task.id}") for task in TwoTasks.TASKS)


class Forgetful(Tasks):
    def state(self):
        return {"position": 0}


class NotJson(Tasks):
    def state(self):
        return {"position": {self._position}}


class Exaggerating(Tasks):
    def size(self):
        return 3


class EndsEarly(TwoTasks):
    def __init__(self, options, context):
        super().__init__(epochs=2)

    def size(self):
        return None


class Buffer(FifoBuffer):
    def __init__(self, options, context):
        super().__init__(FifoOptions(), context)


class Twice(Buffer):
    async def get(self, version):
        if getattr(self, "last", None) is not None:
            group, self.last = self.last, None
            return group
        self.last = await super().get(version)
        return self.last


class Unbounded(Buffer):
    def connect(self, groups_per_step, filters, staleness, **more):
        super().connect(1000 * groups_per_step, filters, staleness, **more)


class Secretive(Buffer):
    def discarded(self):
        return []


class ToldAgain(Buffer):
    def discarded(self):
        return list(self._discards)


class Swallowing(Buffer):
    def end(self, error=None):
        super().end()


class NeverWakes(Buffer):
    def end(self, error=None):
        pass


class Losing(Buffer):
    def waiting(self):
        return []

    def state(self):
        return {**super().state(), "waiting": []}


class TellsNobody(Buffer):
    def connect(self, groups_per_step, filters, staleness, *, ordered=False, discarding=None):
        super().connect(groups_per_step, filters, staleness, ordered=ordered)


class Unchanged(Buffer):
    async def put(self, group):
        self.first = group
        return await super().put(group)

    async def get(self, version):
        return await super().get(version) and self.first


class Disorderly(Buffer):
    def connect(self, groups_per_step, filters, staleness, *, ordered=False, discarding=None):
        super().connect(groups_per_step, filters, staleness, discarding=discarding)


class NotFinite(Buffer):
    def metrics(self):
        return {**super().metrics(), "buffer/age": float("nan")}


class Shared(HeldOutEvaluator):
    """A good evaluator."""

    def __init__(self, options, context):
        super().__init__(SharedEvaluatorOptions(attempts=2), context)


class NeverDue(Shared):
    def due(self, step, last):
        return False


class OldVersion(Shared):
    async def evaluate(self, step, version, context):
        return replace(await super().evaluate(step, version, context), version=version - 1)


class AsTraining(Shared):
    async def evaluate(self, step, version, context):
        inner = context.generate
        return await super().evaluate(
            step, version, replace(context, generate=lambda attempt: inner(replace(attempt, purpose="rollout")))
        )


class Stubborn(Shared):
    async def evaluate(self, step, version, context):
        try:
            return await super().evaluate(step, version, context)
        except asyncio.CancelledError:
            return Evaluation(self.name, version, step, {task.id: 0.0 for task in self.tasks(context.data)})


class LeavesAttempts(Shared):
    async def evaluate(self, step, version, context):
        inner = context.generate

        async def apart(attempt):
            return await asyncio.shield(asyncio.ensure_future(inner(attempt)))

        return await super().evaluate(step, version, replace(context, generate=apart))


class ZeroForNothing(Shared):
    async def evaluate(self, step, version, context):
        try:
            return await super().evaluate(step, version, context)
        except Exception:
            return Evaluation(self.name, version, step, {task.id: 0.0 for task in self.tasks(context.data)})


class Tracker:
    """A good tracker."""

    def __init__(self, options, context):
        self.lines = []

    def start(self, run, recipe):
        self.lines.append(run)

    def log(self, step, metrics):
        self.lines.append(dict(metrics))

    def close(self, outcome):
        self.lines.append(outcome)


class NeedsMetrics(Tracker):
    def log(self, step, metrics):
        self.best = max(metrics.values())


class StartsOnce(Tracker):
    runs: ClassVar[list[str]] = []

    def start(self, run, recipe):
        if run in self.runs:
            raise FileExistsError(run)
        self.runs.append(run)


class LeavesThread(Tracker):
    def start(self, run, recipe):
        threading.Thread(target=threading.Event().wait, args=(5,)).start()


class Rewrites(Tracker):
    def log(self, step, metrics):
        metrics["step"] = step


GOOD = {"data": Tasks, "buffer": Buffer, "evaluator": Shared, "tracker": Tracker}
BROKEN = [
    ("data/draws-are-counted", Uncounted),
    ("data/same-seed-same-order", Shuffled),
    ("data/held-out-apart", Leaking),
    ("data/held-out-apart", SamePrompts),
    ("data/resumes", Forgetful),
    ("data/resumes", NotJson),
    ("data/size-agrees", Exaggerating),
    ("data/size-agrees", EndsEarly),
    ("buffer/loses-nothing", Twice),
    ("buffer/bounded", Unbounded),
    ("buffer/discards-are-told", Secretive),
    ("buffer/discards-are-told", ToldAgain),
    ("buffer/discards-are-told-at-once", TellsNobody),
    ("buffer/changed-groups", Unchanged),
    ("buffer/keeps-the-order", Disorderly),
    ("buffer/errors-reach-the-driver", Swallowing),
    ("buffer/end-wakes-get", NeverWakes),
    ("buffer/resumes", Losing),
    ("buffer/metrics", NotFinite),
    ("evaluator/due", NeverDue),
    ("evaluator/files-scores", OldVersion),
    ("evaluator/own-noise", AsTraining),
    ("evaluator/failures-are-no-scores", ZeroForNothing),
    ("evaluator/ends-when-cancelled", Stubborn),
    ("evaluator/ends-when-cancelled", LeavesAttempts),
    ("tracker/takes-a-run", NeedsMetrics),
    ("tracker/resumes", StartsOnce),
    ("tracker/leaves-nothing", LeavesThread),
    ("tracker/leaves-nothing", Rewrites),
]


@pytest.mark.parametrize(("check_id", "factory"), BROKEN)
def test_a_broken_one_is_caught(check_id, factory):
    finding = try_check(check_id, factory)
    assert finding.result is CheckResult.FAILED, finding
    assert finding.detail


@pytest.mark.parametrize("check_id", sorted({check_id for check_id, _ in BROKEN}))
def test_a_good_one_passes(check_id):
    finding = try_check(check_id, GOOD[check_id.partition("/")[0]])
    assert finding.result is CheckResult.PASSED, finding


@pytest.mark.parametrize("first", ["tracker/takes-a-run", "tracker/resumes"])
def test_what_a_tracker_did_in_one_check_hides_nothing_from_the_next(first):
    try_check(first, Rewrites)
    assert try_check("tracker/leaves-nothing", Rewrites).result is CheckResult.FAILED
    assert try_check("tracker/leaves-nothing", Tracker).result is CheckResult.PASSED


def test_data_without_held_out_tasks_is_none_the_worse():
    class NoHeldOut(Tasks):
        def held_out(self, count):
            raise RequestError("there is no held-out split")

    assert try_check("data/held-out-apart", NoHeldOut).result is CheckResult.INAPPLICABLE
