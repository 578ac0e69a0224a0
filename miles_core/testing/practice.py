"""A ring for practice: real schedule, rollout and buffer; attempts and training steps are whatever a test says."""

from __future__ import annotations

from collections.abc import Sequence as Several
from dataclasses import dataclass, field

from miles_core.contracts.component import BuildContext
from miles_core.contracts.lifecycle import Clock
from miles_core.contracts.rollout import Data, Discard, Filter, Schedule, Staleness
from miles_core.loop.occupancy import Generate
from miles_core.rollout.fifo_buffer import FifoBuffer, FifoOptions
from miles_core.rollout.groups import GroupsOptions, GroupsRollout
from miles_core.rollout.recycled import RecyclingData
from miles_core.simulate.ring import Parts, Publish, Score, Took, Train
from miles_core.types.sampling import Sampling
from miles_core.types.trajectory import Disposition, Group


@dataclass(slots=True)
class Practice:
    """What came of it: the batches, what was discarded, how many groups were submitted; from step `warm[0]` to step
    `warm[1]`, who was idle how much (`engine_gap`, `held_back`: see docs/metrics.md) and how long a batch took."""

    batches: list[list[Group]] = field(default_factory=list, repr=False)
    discards: list[Discard] = field(default_factory=list, repr=False)
    stale: int = 0
    cancelled: int = 0
    submitted: int = 0
    seconds: float = 0.0
    batch_seconds: float = 0.0
    trainer_idle: float = 0.0
    engine_idle: float = 0.0
    engine_gap: float = 0.0
    held_back: float = 0.0


async def practise(
    schedule: Schedule,
    data: Data,
    generate: Generate,
    *,
    steps: int,
    train: Train,
    publish: Publish,
    clock: Clock,
    buffer: FifoOptions | None = None,
    filters: Several[Filter] = (),
    staleness: Staleness | None = None,
    score: Score | None = None,
    seed: int = 1,
    warm: tuple[int, int] | None = None,
    keep: bool = True,
) -> Practice:
    """Go round `steps` times, or until the data ends. Version 1 trains step 0; `publish` brings the others.

    `warm` are the steps between which idleness is measured, from first to last by default; without `keep`, groups are
    forgotten when they were trained.
    """
    context = BuildContext(seed, "practice")
    rollout, result, began = GroupsRollout(GroupsOptions(), context), Practice(), clock.now()
    parts = Parts(
        schedule=schedule,
        rollout=rollout,
        buffer=FifoBuffer(buffer or FifoOptions(), context),
        data=RecyclingData(data),
        filters=filters,
        staleness=staleness,
        generate=generate,
        sampling=Sampling(max_new_tokens=16),
    )

    def note(took: Took) -> None:
        result.stale += sum(discard.disposition is Disposition.STALE for discard in took.discards)
        result.cancelled += sum(discard.disposition is Disposition.CANCELLED for discard in took.discards)
        if keep:
            result.discards += took.discards
            result.batches += [took.groups] if took.groups else ()

    idleness = await parts.go_round(
        steps, train=train, publish=publish, clock=clock, took=note, warm=warm, score=score, seed=seed
    )
    result.submitted = rollout.state()["next_number"]
    result.seconds = clock.now() - began
    result.trainer_idle, result.engine_idle = idleness.trainer_idle, idleness.engine_idle
    first, last = warm or (0, steps)
    result.batch_seconds = idleness.seconds / max(1, last - first)
    result.engine_gap, result.held_back = idleness.engine_gap, idleness.held_back
    return result
