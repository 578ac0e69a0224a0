"""A ring for practice: real schedule, rollout and buffer; attempts and training steps are whatever a test says.

It goes round as the driver does (`miles_core/loop/driver.py`), without processes, records or checkpoints.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

from miles_core.contracts.component import BuildContext
from miles_core.contracts.engine import PauseMode
from miles_core.contracts.lifecycle import Clock
from miles_core.contracts.rollout import Attempt, Data, Discard, Filter, Schedule, Staleness
from miles_core.loop.account import Returns
from miles_core.loop.occupancy import Occupancy
from miles_core.loop.ring import Phase
from miles_core.rollout.fifo_buffer import FifoBuffer, FifoOptions
from miles_core.rollout.groups import GroupsOptions, GroupsRollout
from miles_core.rollout.recycled import RecyclingData
from miles_core.types.sampling import Sampling
from miles_core.types.trajectory import Disposition, Group, Trajectory

Generate = Callable[[Attempt], Coroutine[Any, Any, Trajectory]]
Score = Callable[[Group], Coroutine[Any, Any, Group]]
Publish = Callable[[int, PauseMode], Awaitable[None]]


@dataclass(slots=True)
class Practice:
    """What came of it: the batches, what was discarded, how many groups were submitted, and who was idle how much from
    step `warm[0]` to step `warm[1]`."""

    batches: list[list[Group]] = field(default_factory=list, repr=False)
    discards: list[Discard] = field(default_factory=list, repr=False)
    stale: int = 0
    submitted: int = 0
    seconds: float = 0.0
    trainer_idle: float = 0.0
    engine_idle: float = 0.0


class _Silent:
    def emit(self, name: str, /, **facts: Any) -> None:
        pass


async def practise(
    schedule: Schedule,
    data: Data,
    generate: Generate,
    *,
    steps: int,
    train: Callable[[Several[Group]], Awaitable[None]],
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
    rollout, tasks = GroupsRollout(GroupsOptions(), context), RecyclingData(data)
    box = FifoBuffer(buffer or FifoOptions(), context)
    ordered = schedule.pace.ordered
    box.connect(schedule.groups_per_step, filters, staleness, ordered=ordered, discarding=Returns(tasks, rollout))
    slots = schedule.pace.in_flight or schedule.groups_per_step * schedule.group_size
    occupancy = Occupancy(slots, clock)
    phase = _phase(schedule, tasks, rollout, box, occupancy.around(generate), score or _unscored, steps, occupancy)
    result, version, began = Practice(), 1, clock.now()
    working, since, measured = 0.0, began, False
    first, last = warm or (0, steps)
    await phase.start(seed, cast(Any, _Silent()))
    try:
        for step in range(steps):
            if step == first:
                working, since = 0.0, clock.now()
                occupancy.metrics()
            if step == last:
                _measure(result, working, clock.now() - since, occupancy)
                measured = True
            phase.allow(step, taken=False)
            groups = await phase.take(version)
            discards = box.discarded()
            result.stale += sum(discard.disposition is Disposition.STALE for discard in discards)
            result.discards += discards if keep else ()
            if not groups:
                break
            result.batches += [groups] if keep else ()
            phase.allow(step, taken=True)
            started = clock.now()
            await train(groups)
            working += clock.now() - started
            if step + 1 == steps or schedule.publishes(step + 1):
                if schedule.pace.settles:
                    await rollout.drain()
                version += 1
                await publish(version, schedule.pace.pause)
    finally:
        await rollout.close()
    result.submitted = rollout.state()["next_number"]
    result.seconds = clock.now() - began
    if not measured:
        _measure(result, working, clock.now() - since, occupancy)
    return result


def _measure(result: Practice, working: float, window: float, occupancy: Occupancy) -> None:
    if window > 0:
        result.trainer_idle = 1 - working / window
        result.engine_idle = occupancy.metrics().get("time/engine_idle", 0.0)


def _phase(
    schedule: Schedule,
    data: RecyclingData,
    rollout: GroupsRollout,
    buffer: FifoBuffer,
    generate: Generate,
    score: Score,
    steps: int,
    occupancy: Occupancy,
) -> Phase:
    return Phase(
        plan=cast(Any, SimpleNamespace(sampling=Sampling(max_new_tokens=16))),
        first=0,
        end=steps,
        data=data,
        generator=cast(Any, None),
        rollout=rollout,
        schedule=schedule,
        buffer=buffer,
        advantage=None,
        evaluators=(),
        generate=generate,
        score=score,
        evaluation_generate=generate,
        evaluation_score=score,
        evaluation_sampling=Sampling(),
        occupancy=occupancy,
    )


async def _unscored(group: Group) -> Group:
    return group
