"""The driver: tasks → groups → batch → trainer → weights, version n+1 → engines, and round again.

It knows no backend and no schedule: it asks the phase's schedule how far the rollout may run ahead, when to publish,
and what a publication does to requests in flight.
"""

from __future__ import annotations

from miles_core.contracts.trainer import StepReport
from miles_core.loop.batch import Chosen, choose, make_batch
from miles_core.loop.checkpoint import Checkpoints
from miles_core.loop.due import Progress
from miles_core.loop.evaluating import Evaluations
from miles_core.loop.measures import batch_metrics, count_prompts
from miles_core.loop.ring import Phase, Ring, Starved


async def drive(ring: Ring, progress: Progress, checkpoints: Checkpoints) -> None:
    """Go round until every phase is done. Raises what stops the run; what was saved stays."""
    evaluations = Evaluations(ring, progress)
    try:
        await ring.publish(progress.version)  # version 1 trains step 0
        if progress.resumed:
            await evaluations.again()
        else:
            await evaluations.begin(ring.phases[0])
        for phase in ring.phases:
            if progress.step < phase.end:
                await _go_through(ring, phase, progress, evaluations, checkpoints)
        await checkpoints.save_last(ring, progress)
        await evaluations.finish()
    finally:
        await evaluations.close()


async def _go_through(
    ring: Ring, phase: Phase, progress: Progress, evaluations: Evaluations, checkpoints: Checkpoints
) -> None:
    ring.recorder.emit("phase_started", name=phase.plan.name, step=progress.step, steps=phase.end - phase.first)
    if ring.trainer is not None and phase.plan.loss is not None:
        parts = {"loss": phase.plan.loss, "correction": phase.plan.correction}
        await ring.trainer.begin_phase({kind: ref for kind, ref in parts.items() if ref is not None})
    await phase.start(ring.plan.seed, ring.recorder)
    try:
        while progress.step < phase.end:
            if not await _step(ring, phase, progress, evaluations):
                await evaluations.begin(phase, last=True)
                break
            await evaluations.begin(phase, last=progress.step == phase.end)
            ring.recorder.measure(ring.sessions.metrics() if ring.sessions else {})
            phase.adapt(progress.step, ring.recorder, ring.recorder.finish_step())
            await checkpoints.save_if_due(ring, progress)
        phase.tell_unchanged(progress.step, ring.recorder)
    finally:
        await phase.rollout.close()


async def _step(ring: Ring, phase: Phase, progress: Progress, evaluations: Evaluations) -> bool:
    """One turn of the ring. False when the data ended before there was anything to train on."""
    recorder = ring.recorder
    recorder.begin_step(progress.step, phase.plan.name, progress.version)
    prompts = await count_prompts(ring.engines)
    with recorder.timed("rollout"):
        phase.allow(progress.step, taken=False)
        groups = await ring.unless_starved(phase.take(progress.version))
    if groups is None:
        raise Starved(f"the last engine died when the trainer no longer held version {progress.version}")
    if not groups:
        recorder.note("the data ended", step=progress.step)
        recorder.keep_rest(phase.plan.name, phase.buffer.discarded())
        if progress.ahead:
            await evaluations.settle()
            await _publish(ring, phase, progress)
        return False
    recorder.measure(batch_metrics(groups), phase.buffer.metrics())
    discards = phase.buffer.discarded()
    phase.allow(progress.step, taken=True)
    phase.foresee(progress.step, progress.version)
    chosen = choose(groups, phase.advantage is not None)
    with recorder.timed("train"):
        report = await _learn(ring, phase, progress, chosen)
    progress.step += 1
    recorder.keep(groups, chosen.dispositions, discards)
    due = progress.step == phase.end or phase.schedule.publishes(progress.step) or ring.wants_weights
    if ring.trainer is not None and due:
        await evaluations.settle()
        await _publish(ring, phase, progress)
    recorder.measure(report.metrics, phase.occupancy.metrics() if phase.occupancy else {})
    recorder.measure(phase.adapting.settings() if phase.adapting else {})
    prompts_now = await count_prompts(ring.engines)
    recorder.measure(prompts_now.since(prompts), ring.keeper.metrics() if ring.keeper else {})
    return True


async def _publish(ring: Ring, phase: Phase, progress: Progress) -> None:
    pace = phase.schedule.pace
    if pace.settles:
        with ring.recorder.timed("rollout"):
            await ring.unless_starved(phase.rollout.drain())
    with ring.recorder.timed("publish"):
        progress.version += 1
        await ring.publish(progress.version, pace.pause)
        progress.ahead = False


async def _learn(ring: Ring, phase: Phase, progress: Progress, chosen: Chosen) -> StepReport:
    if ring.trainer is None or phase.plan.loss is None or not chosen.groups:
        return StepReport({})
    progress.ahead = True
    return await ring.learn(make_batch(progress.step, chosen.groups, phase.advantage))
