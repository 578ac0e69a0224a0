"""The evaluations of a run: when each begins, what it may hold up, and that each ends as a score or as a reason.

    on the rollout's engines   training waits; where the schedule runs ahead, the requests go beside the rollout's and
                               only the next update waits, since no attempt may see two versions
    on engines of its own      training waits until those hold the version; then both go on
    over exported weights      training waits for the export; then both go on

What still goes on when the next one is due makes that one wait (its weights are exported), or skip. The last one of
all is never skipped.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Coroutine, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from miles_core.contracts.observing import Evaluation
from miles_core.errors import RunError, WorkerDied
from miles_core.loop.due import Due, Pending, Progress
from miles_core.loop.evaluation_fleet import EvaluationFleet, evaluation_name
from miles_core.loop.exports import Exports
from miles_core.loop.filing import Lag
from miles_core.loop.measuring import GivenUp, measure, reason_of, within
from miles_core.loop.ring import Phase, Ring
from miles_core.loop.weight_sources import DiskWeights

LOOK = 1.0
"""Seconds between two looks at what the end of a run waits for."""


class Evaluations:
    """Belongs to the driver, as `progress` does: what is under way stands there, so that a checkpoint keeps it."""

    def __init__(self, ring: Ring, progress: Progress) -> None:
        self._ring = ring
        self._progress = progress
        self._recorder = ring.recorder
        self._exports = Exports(ring)
        self._tasks: dict[asyncio.Task[None], Due] = {}
        self._lanes: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._deferred: dict[str, Pending] = {}
        self._known = {(each.name.partition("/")[0], each.step) for each in ring.recorder.evaluations}

    async def begin(self, phase: Phase, *, last: bool = False, all_of_them: bool = False) -> None:
        """Begin what is due now, or all. `last`: the phase is over."""
        self._reap()
        for place in range(len(phase.evaluators)):
            due = Due.of(self._ring, phase, place, self._progress, last=last)
            wanted = all_of_them or due.name in self._deferred or due.is_due(last)
            if not wanted or due.key in self._known:
                continue
            if self._progress.ahead and not due.on_rollout and not due.fault:
                self._defer(due)
            else:
                self._forget_deferred(due.name)
                await self._begin(due)

    async def again(self) -> None:
        """What was under way when the run stopped, once more, where its weights can still be had."""
        self._exports.keep_only({pending.version for pending in self._progress.pending})
        for pending in list(self._progress.pending):
            due = Due.again(self._ring, pending)
            if due is None or due.key in self._known:
                self._progress.pending.remove(pending)
            elif pending.version == self._progress.version or self._exports.has(pending.version):
                await self._begin(due)
            else:
                why = f"the run stopped before version {pending.version} was measured, and its weights are gone"
                self._file(due, due.missing(why), late=True)

    async def settle(self) -> None:
        """New weights come: nobody measures the old ones on the rollout's engines when this returns."""
        there = {task: due for task, due in self._tasks.items() if due.on_rollout}
        if not there:
            return
        skipping = [task for task, due in there.items() if due.yields]
        self._give_up(skipping, f"version {self._progress.version + 1} was due before it ended (on_update: skip)")
        with self._recorder.timed("evaluate"):
            await asyncio.wait(there)
        self._reap()

    async def finish(self) -> None:
        """Wait for all that is under way. Each has its time limit."""
        while self._tasks:
            names = ", ".join(sorted({due.name for due in self._tasks.values()}))
            oldest = min(due.began for due in self._tasks.values())
            limit = max(due.limit for due in self._tasks.values())
            waited = self._recorder.clock.now() - oldest
            self._recorder.progress(f"seconds, for evaluation {names}", round(waited), round(limit))
            await asyncio.wait(self._tasks, timeout=LOOK, return_when=asyncio.FIRST_COMPLETED)
            self._reap()
        self._recorder.finish_late(self._progress.step - 1)

    async def close(self) -> None:
        """Cancel what is under way: the run ends early."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _begin(self, due: Due) -> None:
        self._known.add(due.key)
        self._progress.pending = [each for each in self._progress.pending if each != due.pending] + [due.pending]
        if due.fault:
            self._file(due, due.missing(due.fault))
        elif due.own_engines:
            await self._begin_on_fleet(due)
        elif due.exported:
            await self._begin_exported(due)
        elif due.beside:
            self._go(due, self._on_rollout(due))
        else:
            with self._recorder.timed("evaluate"):
                await self._outcome(due, self._on_rollout(due), late=False)

    def _defer(self, due: Due) -> None:
        """The trainer holds weights that have no version yet: they are measured when they are published."""
        if due.name not in self._deferred:
            self._deferred[due.name] = due.pending
            self._progress.pending.append(due.pending)

    def _forget_deferred(self, name: str) -> None:
        deferred = self._deferred.pop(name, None)
        if deferred in self._progress.pending:
            self._progress.pending.remove(deferred)

    async def _begin_on_fleet(self, due: Due) -> None:
        fleet = self._ring.evaluation_fleets[evaluation_name(due.ref)]
        if due.final:
            await self._lane_is_free(due.name)
            await within(fleet.is_up(), due.limit)
        if self._ahead(due.name) or due.version != self._progress.version:
            await self._begin_from_disk(due, partial(self._on_fleet, due, fleet))
            return
        try:
            with self._recorder.timed("evaluate"):
                await within(fleet.take(due.version, self._ring.weights), due.limit)
        except Exception as error:
            self._file(due, due.missing(f"its engines did not get version {due.version}: {reason_of(error)}"))
        else:
            self._go(due, self._on_fleet(due, fleet))

    async def _begin_exported(self, due: Due) -> None:
        if due.final:
            await self._lane_is_free(due.name)
        await self._begin_from_disk(due, partial(self._over, due))

    async def _begin_from_disk(self, due: Due, work: Any) -> None:
        """Begin or queue `work(folder)` over exported weights, or say why not."""
        ahead = self._ahead(due.name)
        if ahead > due.queue and not due.must:
            what = "another evaluation is under way" if ahead == 1 else f"{ahead} evaluations are under way or waiting"
            self._file(due, due.missing(f"{what} (queue: {due.queue})"))
            self._known.discard(due.key)  # should it turn out to be the last one, it is made
            return
        try:
            with self._recorder.timed("evaluate"):
                folder = await self._exports.take(due.version)
        except Exception as error:
            self._file(due, due.missing(f"version {due.version} could not be exported: {reason_of(error)}"))
        else:
            self._go(due, self._with_export(due, work(folder)))

    async def _with_export(self, due: Due, work: Coroutine[Any, Any, Evaluation]) -> Evaluation:
        try:
            found = await work
        except Exception:
            self._exports.give_back(due.version)
            raise
        self._exports.give_back(due.version)  # a run that ends early leaves it to whoever resumes
        return found

    async def _on_rollout(self, due: Due) -> Evaluation:
        found = await self._ring.unless_starved(self._measured(due))
        if found is None:  # an update would bring engines back, and waits for the evaluation
            raise GivenUp("the engines died, and get no more of its weights")
        return found

    async def _on_fleet(self, due: Due, fleet: EvaluationFleet, folder: Path | None = None) -> Evaluation:
        async with self._lanes[due.name]:
            if folder is not None:
                if not await fleet.reads_disk():
                    raise GivenUp("its engines were busy, and cannot take weights from disk later")
                await within(fleet.take(due.version, DiskWeights(folder)), due.limit)
            found = await fleet.unless_lost(self._measured(due))
            await fleet.prove(due.version)
            return found

    async def _over(self, due: Due, folder: Path) -> Evaluation:
        async with self._lanes[due.name]:
            return await self._measured(due, folder)

    async def _measured(self, due: Due, folder: Path | None = None) -> Evaluation:
        due.started = self._recorder.clock.now()
        context = due.context(self._ring, folder)
        return await measure(due.evaluator, due.step, due.version, context, due.versions, due.limit)

    def _go(self, due: Due, work: Coroutine[Any, Any, Evaluation]) -> None:
        task = asyncio.create_task(self._outcome(due, work, late=True), name=f"evaluation {due.name} of {due.version}")
        self._tasks[task] = due

    async def _outcome(self, due: Due, work: Coroutine[Any, Any, Evaluation], *, late: bool) -> None:
        try:
            found = await work
        except asyncio.CancelledError:
            if not due.given_up:
                raise
            found = due.missing(due.given_up)
        except Exception as error:
            if due.on_rollout and isinstance(error, WorkerDied) and self._ring.loss():
                raise  # training meets it as well: the run goes back, and measures again
            found = due.missing(reason_of(error))
        self._file(due, found, late=late)

    def _give_up(self, tasks: Iterable[asyncio.Task[None]], why: str) -> None:
        for task in tasks:
            if not task.done():
                self._tasks[task].given_up = why
                task.cancel()

    def _file(self, due: Due, found: Evaluation, *, late: bool = False) -> None:
        self._progress.pending = [each for each in self._progress.pending if each != due.pending]
        now, progress = self._recorder.clock.now(), self._progress
        took = now - due.started if due.started else 0.0
        lag = Lag(progress.version - due.version, progress.step - due.step, now - due.began, took)
        for each in due.split(found):
            self._recorder.file(each, lag, late=late)

    def _ahead(self, name: str) -> int:
        self._reap()
        return sum(due.name == name for due in self._tasks.values())

    async def _lane_is_free(self, name: str) -> None:
        while before := [task for task, due in self._tasks.items() if due.name == name]:
            await asyncio.wait(before)
            self._reap()

    def _reap(self) -> None:
        """Forget what ended. Raises what could not even be filed."""
        for task in [task for task in self._tasks if task.done()]:
            del self._tasks[task]
            if task.cancelled():
                raise RunError(f"{task.get_name()} was cancelled by somebody else")
            task.result()
