"""A rollout: owns the whole phase, and puts as many groups into the buffer as it was granted."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from miles_core.contracts.capabilities import REMAKES
from miles_core.contracts.pace import Pace, Refill
from miles_core.contracts.rollout import Rollout
from miles_core.errors import RunError
from miles_core.testing.kit.bench_rollout import GROUP_SIZE, RolloutBench
from miles_core.testing.kit.check import Grade, check, expect, inapplicable
from miles_core.testing.kit.living import nothing_left, settle, soon
from miles_core.testing.kit.subject import ComponentSubject


@check("rollout", Grade.GOLD, "a grant of n gives n groups in the buffer, and no more before the next grant")
async def keeps_its_grant(subject: ComponentSubject) -> None:
    bench = RolloutBench()
    with nothing_left("a rollout that was closed"):
        rollout = await _started(subject, bench)
        await settle()
        expect(not bench.kept and not bench.attempts, "it works before it was granted anything", "wait for grant()")
        for granted, total in ((3, 3), (2, 5)):
            rollout.grant(granted)
            await bench.until(lambda wanted=total: len(bench.kept) >= wanted)  # type: ignore[misc]
            await settle()
            expect(
                len(bench.kept) == total,
                f"granted {total} in all, {len(bench.kept)} are kept",
                "count groups that the buffer kept",
            )
        await _close(rollout)
    _expect_whole(bench)


@check("rollout", Grade.GOLD, "a group that the buffer rejects is replaced by another one")
async def replaces_rejected(subject: ComponentSubject) -> None:
    bench = RolloutBench(rejected=frozenset({0, 2}))
    rollout = await _started(subject, bench)
    rollout.grant(3)
    await bench.until(lambda: len(bench.kept) >= 3)
    await settle()
    await _close(rollout)
    expect(len(bench.refused) == 2, f"{len(bench.refused)} groups were rejected, not 2", "put every finished group")
    expect(len(bench.kept) == 3, f"granted 3, 2 were rejected, {len(bench.kept)} are kept", "replace what was rejected")
    _expect_whole(bench)


@check("rollout", Grade.GOLD, "after drain nothing is in flight, and nothing new begins")
async def drains(subject: ComponentSubject) -> None:
    bench = RolloutBench()
    rollout = await _started(subject, bench)
    bench.held.clear()
    rollout.grant(4)
    await settle()
    draining = asyncio.ensure_future(rollout.drain())
    await settle()
    early = draining.done() and bench.in_flight > 0
    expect(not early, f"drain returned while {bench.in_flight} attempts were in flight", "wait for what is in flight")
    bench.held.set()
    await soon(draining, "drain", "return when nothing is in flight")
    expect(not bench.in_flight, f"{bench.in_flight} attempts are in flight after drain", "wait for them")
    attempts = bench.attempts
    await settle()
    await _close(rollout)
    expect(bench.attempts == attempts, "new attempts begin after drain", "wait for the next grant")


@check("rollout", Grade.GOLD, "close ends what is in flight at once, and leaves no task behind")
async def closes(subject: ComponentSubject) -> None:
    bench = RolloutBench()
    with nothing_left("a rollout that was closed in the middle"):
        rollout = await _started(subject, bench)
        bench.held.clear()
        rollout.grant(3)
        await settle()
        await _close(rollout)
        await settle()
    expect(not bench.in_flight, f"{bench.in_flight} attempts go on after close", "cancel them")


@check("rollout", Grade.GOLD, "state is JSON, and a restored one goes on without repeating or losing a group")
async def resumes(subject: ComponentSubject) -> None:
    bench = RolloutBench()
    rollout = await _started(subject, bench)
    rollout.grant(3)
    await bench.until(lambda: len(bench.kept) >= 3)
    await soon(rollout.drain(), "drain", "return when nothing is in flight")
    state = json.loads(json.dumps(rollout.state(), allow_nan=False))
    await _close(rollout)
    resumed: Rollout = subject.build()
    resumed.restore(state)
    await resumed.start(bench.context())
    resumed.grant(3)
    await bench.until(lambda: len(bench.kept) >= 6)
    await settle()
    await _close(resumed)
    expect(len(bench.kept) == 6, f"3 and 3 were granted, {len(bench.kept)} are kept", "go on after restore")
    _expect_whole(bench)


@check("rollout", Grade.GOLD, "what breaks in an attempt reaches the driver through the buffer's end")
async def errors_reach_the_driver(subject: ComponentSubject) -> None:
    error = RunError("the engine is gone")
    bench = RolloutBench(error=error)
    rollout = await _started(subject, bench)
    rollout.grant(2)
    await bench.until(lambda: bool(bench.ends) or len(bench.kept) >= 2)
    await _close(rollout)
    if not bench.attempts:
        inapplicable("it makes no attempts")
    expect(bench.ends, "an attempt broke, and nobody was told", "call context.buffer.end(error)")
    expect(bench.ends[0] is error, f"the buffer was ended with {bench.ends[0]!r}", "hand on the error itself")


@check("rollout", Grade.GOLD, "when the data ends, so does the buffer, after the last group")
async def ends_with_the_data(subject: ComponentSubject) -> None:
    bench = RolloutBench(tasks=3)
    rollout = await _started(subject, bench)
    rollout.grant(50)
    await bench.until(lambda: bool(bench.ends))
    await _close(rollout)
    if not bench.drawn:
        inapplicable("it draws no tasks") if bench.ends else expect(False, "it never ends", "call buffer.end()")
    expect(bench.ends, "the data ended, and the buffer did not", "call context.buffer.end()")
    expect(bench.ends[0] is None, f"the buffer was ended with {bench.ends[0]!r}", "the end of the data is no error")
    expect(len(bench.kept) == 3, f"3 tasks, {len(bench.kept)} groups", "put what was begun before the end")


@check("rollout", Grade.GOLD, "one that remakes keeps what it is given, and makes the rest with noise of its own")
async def remakes(subject: ComponentSubject) -> None:
    rollout: Any = subject.build()
    says = REMAKES in subject.registered.component.capabilities
    if not hasattr(rollout, "remake"):
        expect(not says, f"it declares {REMAKES!r} and has no method remake", "add it (miles_core's Remakes)")
        inapplicable("it makes whole groups only")
    expect(says, f"it has the method remake, and does not declare {REMAKES!r}", "declare it: policies ask")
    bench = RolloutBench()
    await soon(rollout.start(bench.context()), "start", "return at once, and work in a task")
    rollout.grant(1)
    await bench.until(lambda: len(bench.kept) >= 1)
    before = bench.kept[0]
    rollout.remake(before.replacing(before.trajectories[:1]))
    state = json.loads(json.dumps(rollout.state(), allow_nan=False))
    await bench.until(lambda: len(bench.kept) >= 2)
    await _close(rollout)
    expect(len(bench.kept) == 2, f"{len(bench.kept)} groups are kept", "remake(kept) grants one group")
    after = bench.kept[1]
    same = (after.task.id, after.draw) == (before.task.id, before.draw) and after.number != before.number
    expect(same, f"{before.id} became {after.id} of task {after.task.id!r}", "the same draw under a new number")
    expect(after.trajectories[0].id == before.trajectories[0].id, "what was kept is gone", "keep it as it is")
    new = {t.id for t in after.trajectories} - {t.id for t in before.trajectories}
    expect(len(new) == GROUP_SIZE - 1, f"{len(new)} trajectories are new", "make those at the missing indices")
    expect(len(set(bench.noises)) == len(bench.noises), "noise was used twice", "attempts have `remade` + 1")
    resumed, again = subject.build(), RolloutBench()
    resumed.restore(state)
    await soon(resumed.start(again.context()), "start", "return at once, and work in a task")
    await again.until(lambda: len(again.kept) >= 1)
    await _close(resumed)
    ids = [t.id for group in again.kept for t in group.trajectories]
    expect(ids == [t.id for t in after.trajectories], f"resumed, it made {ids}", "keep in state() what a group keeps")


@check("rollout", Grade.GOLD, "one that foresees cancels what is hopeless, and puts it with the reason")
async def gives_up(subject: ComponentSubject) -> None:
    bench = RolloutBench(straggling=True, hopeless=lambda _, version: "too old" if version > 1 else "")
    rollout: Any = await _started(subject, bench)
    if not hasattr(rollout, "foresee"):
        await _close(rollout)
        inapplicable("it lets every attempt end")
    bench.held.clear()
    rollout.grant(1)
    rollout.foresee(1)
    await settle()
    expect(not bench.kept and bench.in_flight, "it cancelled what could be trained", "ask context.hopeless")
    rollout.foresee(2)
    await bench.until(lambda: bool(bench.kept))
    waiting = bench.in_flight
    await _close(rollout)
    expect(bench.kept, "it put nothing", "put the group as it is, with cancelled attempts as ABORTED")
    expect(bench.kept[0].cancelled == "too old", f"the reason is {bench.kept[0].cancelled!r}", "metadata[CANCELLED]")
    expect(len(bench.kept[0].trajectories) == GROUP_SIZE, "the group is not whole", "one trajectory for each attempt")
    expect(not waiting or len(bench.kept) > 1, f"{waiting} attempts go on", "cancel their tasks")


@check("rollout", Grade.GOLD, "one that can be paced anew fills as many slots as it then has")
async def repaces(subject: ComponentSubject) -> None:
    bench = RolloutBench(pace=Pace(refill=Refill.SAMPLE, in_flight=GROUP_SIZE))
    rollout: Any = await _started(subject, bench)
    if not hasattr(rollout, "repace"):
        await _close(rollout)
        inapplicable("its pace is that of the beginning")
    bench.held.clear()
    rollout.grant(8)
    await settle()
    found = [bench.in_flight]
    rollout.repace(Pace(refill=Refill.SAMPLE, in_flight=3 * GROUP_SIZE))
    await settle()
    found.append(bench.in_flight)
    bench.held.set()
    await bench.until(lambda: len(bench.kept) >= 8)
    await _close(rollout)
    wanted = [GROUP_SIZE, 3 * GROUP_SIZE]
    expect(found == wanted, f"attempts in flight were {found}, not {wanted}", "read the pace before each start")


async def _started(subject: ComponentSubject, bench: RolloutBench) -> Rollout:
    rollout: Rollout = subject.build()
    await soon(rollout.start(bench.context()), "start", "return at once, and work in a task")
    return rollout


async def _close(rollout: Rollout) -> None:
    await soon(rollout.close(), "close", "cancel what is in flight and return")


def _expect_whole(bench: RolloutBench) -> None:
    """Groups have their size, and each is there once."""
    numbers = [group.number for group in bench.kept]
    expect(
        len(set(numbers)) == len(numbers),
        f"group numbers are {numbers}",
        "number each group once, in a resumed run too",
    )
    ids = [trajectory.id for group in bench.kept for trajectory in group.trajectories]
    expect(len(set(ids)) == len(ids), "trajectories have the same ids", "derive ids from the group's number")
    sizes = {len(group.trajectories) for group in bench.kept}
    expect(sizes == {GROUP_SIZE}, f"groups have {sorted(sizes)} trajectories", "make context.group_size attempts")
    rewarded = all(t.reward is not None for group in bench.kept for t in group.trajectories)
    expect(rewarded, "groups were put without rewards", "call context.score before put")
