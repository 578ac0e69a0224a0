"""A run from its first process to its end, and back to the last checkpoint when it lost what it cannot go on without.

A run whose trainer died, or whose last engine, is put together again inside the same command, exactly as `miles resume`
does it: what was put on record since the checkpoint is forgotten and made again. How often is bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from miles_core.errors import MilesError, RequestError, RunError
from miles_core.loop.assemble import assemble
from miles_core.loop.checkpoint import Checkpoints, Saved, restore
from miles_core.loop.driver import drive
from miles_core.loop.due import Progress, read_pending
from miles_core.loop.record import Recorder
from miles_core.loop.rewinding import rewind
from miles_core.loop.ring import Ring, Starved
from miles_core.observe.folder import RunFolder
from miles_core.recipe.resolved import Plan
from miles_core.runtime.clients import RemoteTrainer
from miles_core.runtime.life import delay


async def run_ring(plan: Plan, folder: RunFolder, recorder: Recorder, saved: Saved | None) -> None:
    """Everything between the first process and the last, from `saved` or from the beginning. Raises what stops the run
    for good: it failed, was interrupted, or its restores are spent."""
    recorder.emit("run_started", folder=folder.path, recipe=dict(plan.recipe))
    restores = Restores(plan, folder, recorder)
    while True:
        try:
            await _go_on(plan, folder, recorder, saved, restores)
            return
        except RunError as error:
            saved = await restores.go_back(error)


class Restores:
    """What was lost, and how often the run may go back for it."""

    def __init__(self, plan: Plan, folder: RunFolder, recorder: Recorder) -> None:
        self._plan = plan
        self._folder = folder
        self._recorder = recorder
        self._in_a_row = 0
        self._last: int | None = None
        self.lost = ""
        self.progress = Progress()

    async def go_back(self, error: RunError) -> Saved | None:
        """The checkpoint to go on from; None is the beginning of the run. Raises `error` when it is not the kind of
        loss that this mends, or was met too often without a new checkpoint."""
        if not self.lost:
            raise error
        saved = checkpoints_of(self._plan, self._folder).latest()
        step, limit = (0 if saved is None else saved.step), self._plan.faults.restores
        if step != self._last:
            self._in_a_row, self._last = 0, step
        if self._in_a_row >= limit:
            if limit:
                times = f"{limit} time{'s' if limit > 1 else ''}"
                error.add_note(f"the run went back to step {step} {times} for such a loss (faults.restores)")
            raise error
        wait = delay(self._in_a_row, self._plan.faults.restart_delay)
        self._in_a_row += 1
        died_at = self.progress.step
        rewind(self._folder, self._recorder, saved)
        self._recorder.emit(
            "run_restored", lost=self.lost, why=str(error), died_at=died_at, step=step, restore=self._in_a_row, of=limit
        )
        self._recorder.count("trainer/restores" if self.lost == "the trainer" else "engine/restores")
        self._folder.write_status(state="running", steps_done=step, steps=self._plan.steps)
        await self._recorder.clock.sleep(wait)
        return saved


async def _go_on(plan: Plan, folder: RunFolder, recorder: Recorder, saved: Saved | None, restores: Restores) -> None:
    """One ring, until the run is done or something ends it. What it lost then stands in `restores`. A first ring that
    cannot even be built is no loss: most likely it never can."""
    began = recorder.clock.now()
    with recorder.timed("start"):
        ring = await assemble(plan, folder.path.resolve(), recorder)
    recorder.emit("workers_ready", seconds=recorder.clock.now() - began)
    restores.lost = ""
    try:
        restores.progress = await _restore(ring, saved) if saved is not None else Progress()
        await _while_it_lives(ring, drive(ring, restores.progress, checkpoints_of(plan, folder, saved)))
    except RunError as error:
        restores.lost = "the last engine" if isinstance(error, Starved) else ring.loss()
        raise
    finally:
        await ring.close()


async def _while_it_lives(ring: Ring, driving: Coroutine[Any, Any, None]) -> None:
    """Drive. Raises WorkerDied as soon as the trainer is gone, whatever the driver waits for."""
    work, watch = asyncio.ensure_future(driving), asyncio.ensure_future(ring.watch())
    try:
        await asyncio.wait({work, watch}, return_when=asyncio.FIRST_COMPLETED)
        (work if work.done() else watch).result()
    finally:
        for task in (work, watch):
            task.cancel()
        await asyncio.gather(work, watch, return_exceptions=True)


async def _restore(ring: Ring, saved: Saved) -> Progress:
    restore(ring, saved)
    if ring.trainer is not None:
        await load_trainer(ring.trainer, saved)
    ahead = bool(saved.state.get("weights_ahead"))  # what it publishes now was never published: a version of its own
    version = saved.state["weight_version"] + ahead
    return Progress(saved.step, version, resumed=True, pending=read_pending(saved.state))


async def load_trainer(trainer: RemoteTrainer, saved: Saved) -> None:
    """Raises RequestError when the trainer cannot load the checkpoint, WorkerDied when it dies."""
    try:
        await trainer.load(saved.trainer.resolve())
    except MilesError:
        raise
    except Exception as error:
        raise RequestError(
            f"the trainer cannot load the checkpoint: {type(error).__name__}: {error}", where=str(saved.trainer)
        ) from error


def checkpoints_of(plan: Plan, folder: RunFolder, saved: Saved | None = None) -> Checkpoints:
    """The checkpoints of a run; `saved` is the one that it goes on from."""
    return Checkpoints(
        folder.checkpoints,
        plan.recipe,
        every=plan.checkpoint_every,
        keep=plan.checkpoint_keep,
        saved=None if saved is None else saved.step,
    )
