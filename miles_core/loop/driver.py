"""The driver: tasks → groups → batch → trainer → weights, version n+1 → engines, and round again.

It knows no backend and no schedule: it asks the phase's schedule how far the rollout may run ahead, when to publish,
and what a publication does to requests in flight.
"""

from __future__ import annotations

from dataclasses import dataclass

from miles_core.contracts.observing import Evaluation, EvaluationContext, Evaluator
from miles_core.contracts.trainer import StepReport
from miles_core.errors import PluginError, RequestError, WorkerDied
from miles_core.loop.batch import Chosen, choose, make_batch
from miles_core.loop.checkpoint import Checkpoints
from miles_core.loop.measures import batch_metrics, count_prompts
from miles_core.loop.ring import Phase, Ring
from miles_core.types.trajectory import Group


@dataclass(slots=True)
class Progress:
    """How far a run is: batches trained, and the weight version in use. Only the driver counts the version up."""

    step: int = 0
    version: int = 1
    resumed: bool = False


async def drive(ring: Ring, progress: Progress, checkpoints: Checkpoints) -> None:
    """Go round until every phase is done. Raises what stops the run; what was saved stays."""
    await ring.publish(progress.version)  # version 1 trains step 0
    if not progress.resumed:
        await _evaluate(ring, ring.phases[0], progress, last=False)
    for phase in ring.phases:
        if progress.step < phase.end:
            await _go_through(ring, phase, progress, checkpoints)
    await checkpoints.save_last(ring, progress)


async def _go_through(ring: Ring, phase: Phase, progress: Progress, checkpoints: Checkpoints) -> None:
    ring.recorder.emit("phase_started", name=phase.plan.name, step=progress.step, steps=phase.end - phase.first)
    if ring.trainer is not None and phase.plan.loss is not None:
        parts = {"loss": phase.plan.loss, "correction": phase.plan.correction}
        await ring.trainer.begin_phase({kind: ref for kind, ref in parts.items() if ref is not None})
    await phase.start(ring.plan.seed, ring.recorder)
    try:
        while progress.step < phase.end:
            if not await _step(ring, phase, progress):
                await _evaluate(ring, phase, progress, last=True)
                break
            await _evaluate(ring, phase, progress, last=progress.step == phase.end)
            ring.recorder.measure(ring.sessions.metrics() if ring.sessions else {})
            ring.recorder.finish_step()
            await checkpoints.save_if_due(ring, progress)
    finally:
        await phase.rollout.close()


async def _step(ring: Ring, phase: Phase, progress: Progress) -> bool:
    """One turn of the ring. False when the data ended before there was anything to train on."""
    recorder = ring.recorder
    recorder.begin_step(progress.step, phase.plan.name, progress.version)
    prompts = await count_prompts(ring.living)
    with recorder.timed("rollout"):
        phase.allow(progress.step, taken=False)
        groups = await phase.take(progress.version)
    if not groups:
        recorder.note("the data ended", step=progress.step)
        recorder.keep_rest(phase.plan.name, phase.buffer.discarded())
        return False
    recorder.measure(batch_metrics(groups), phase.buffer.metrics())
    discards = phase.buffer.discarded()
    phase.allow(progress.step, taken=True)
    chosen = choose(groups, phase.advantage is not None)
    with recorder.timed("train"):
        report = await _learn(ring, phase, progress, chosen)
    progress.step += 1
    recorder.keep(groups, chosen.dispositions, discards)
    if ring.trainer is not None and (progress.step == phase.end or phase.schedule.publishes(progress.step)):
        await _publish(ring, phase, progress)
    recorder.measure(report.metrics, phase.occupancy.metrics() if phase.occupancy else {})
    recorder.measure((await count_prompts(ring.living)).since(prompts), ring.fleet.metrics() if ring.fleet else {})
    return True


async def _publish(ring: Ring, phase: Phase, progress: Progress) -> None:
    pace = phase.schedule.pace
    if pace.settles:
        with ring.recorder.timed("rollout"):
            await phase.rollout.drain()
    with ring.recorder.timed("publish"):
        progress.version += 1
        await ring.publish(progress.version, pace.pause)


async def _learn(ring: Ring, phase: Phase, progress: Progress, chosen: Chosen) -> StepReport:
    if ring.trainer is None or phase.plan.loss is None or not chosen.groups:
        return StepReport({})
    return await ring.trainer.step(make_batch(progress.step, chosen.groups, phase.advantage))


async def _evaluate(ring: Ring, phase: Phase, progress: Progress, last: bool) -> None:
    for evaluator in phase.evaluators:
        if evaluator.due(progress.step, last) and not ring.recorder.has_evaluated(evaluator.name, progress.step):
            with ring.recorder.timed("evaluate"):
                ring.recorder.file(await _measure(ring, phase, evaluator, progress))


async def _measure(ring: Ring, phase: Phase, evaluator: Evaluator, progress: Progress) -> Evaluation:
    """One evaluation. Its failure is a record with the cause, not the end of the run; a dead engine or a broken plugin,
    which training would meet as well, is."""

    def record(groups: list[Group]) -> None:
        ring.recorder.keep_evaluation(evaluator.name, progress.step, groups)

    context = EvaluationContext(
        data=phase.data,
        generate=phase.evaluation_generate,
        score=ring.recorder.counted(phase.evaluation_score, f"evaluation {evaluator.name}", evaluator, phase.data),
        sampling=phase.evaluation_sampling,
        seed=ring.plan.seed,
        record=lambda groups: record(list(groups)),
    )
    try:
        return await evaluator.evaluate(progress.step, progress.version, context)
    except (WorkerDied, RequestError, PluginError):
        raise
    except Exception as error:
        return Evaluation(evaluator.name, progress.version, progress.step, skipped=f"{type(error).__name__}: {error}")
