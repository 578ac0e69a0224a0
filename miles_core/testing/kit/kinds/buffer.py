"""A buffer: what waits between rollout and trainer, bounded; the one place where groups are thrown away."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Callable
from collections.abc import Sequence as Several
from dataclasses import replace

from miles_core.contracts.rollout import Buffer, Discard, Filter, Staleness, Verdict
from miles_core.errors import RequestError
from miles_core.testing.fakes.makers import make_group
from miles_core.testing.kit.check import Grade, check, expect, inapplicable
from miles_core.testing.kit.living import settle, soon
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.types.trajectory import CANCELLED, Disposition, Group, Status

PER_STEP = 2
MANY = 200


class _DropsEmpty:
    """A filter of this page: drops groups of one trajectory."""

    def judge(self, group: Group) -> Verdict:
        return Verdict(len(group.trajectories) > 1, "" if len(group.trajectories) > 1 else "too-small")


class _Ages:
    """A staleness policy of this page: more than two versions behind is too old."""

    def judge(self, group: Group, version: int) -> Verdict:
        old = group.oldest_version is not None and version - group.oldest_version > 2
        return Verdict(not old, "too-old" if old else "")


class _Changes:
    """A staleness policy of this page: keeps every group, as another one."""

    def __init__(self, instead: Group) -> None:
        self._instead = instead

    def judge(self, group: Group, version: int) -> Verdict:
        return Verdict(True, "changed", self._instead)


@check("buffer", Grade.GOLD, "every group that was put is got exactly once, and what was put before the end is got")
async def loses_nothing(subject: ComponentSubject) -> None:
    buffer = _buffer(subject)
    groups = [_group(number) for number in range(20)]

    async def putting() -> None:
        for group in groups:
            verdict = await buffer.put(group)
            expect(verdict.keep, f"group {group.number} was refused: {verdict.reason!r}", "keep what nobody rejects")
        buffer.end()

    rollout = asyncio.ensure_future(putting())
    got = await soon(_rest(buffer), "getting all groups", "after end(), get gives what waits, then None")
    await rollout
    numbers = sorted(group.number for group in got)
    expect(numbers == list(range(20)), f"put 0 to 19, got {numbers}", "give each group once")
    expect({id(g) for g in got} <= {id(g) for g in groups}, "a group came out changed", "give what was put")
    expect(await buffer.get(1) is None, "after the end it gives more than None", "None again and again")


@check("buffer", Grade.GOLD, "put waits while it is full, and goes on when a group was taken")
async def bounded(subject: ComponentSubject) -> None:
    buffer = _buffer(subject)
    puts = [asyncio.ensure_future(buffer.put(_group(number))) for number in range(MANY)]
    await settle()
    kept = sum(put.done() for put in puts)
    expect(
        0 < kept < MANY,
        f"{kept} of {MANY} groups were taken in at once, where a batch has {PER_STEP}",
        "wait in put while capacity (a multiple of groups_per_step) is reached",
    )
    await soon(buffer.get(1), "get of a full buffer", "give what waits")
    await settle()
    now = sum(put.done() for put in puts)
    expect(now == kept + 1, f"{kept} were taken in; after one get {now}", "wake a waiting put for each group taken")
    for put in puts:
        put.cancel()
    await asyncio.gather(*puts, return_exceptions=True)


@check("buffer", Grade.GOLD, "what it throws away is told exactly once, with disposition and reason, and never got")
async def discards_are_told(subject: ComponentSubject) -> None:
    buffer = _buffer(subject, (_DropsEmpty(),), _Ages())
    aborted = make_group(("a", "b"), statuses=(Status.ABORTED, Status.COMPLETED), number=0)
    filtered, stale, kept = make_group(("a",), number=1), _group(2, version=1), _group(3, version=5)
    for group, reason in ((aborted, ""), (filtered, "too-small")):
        verdict = await soon(buffer.put(group), "put", "it must not wait for what it rejects")
        expect(not verdict.keep, f"group {group.number} was kept", "reject aborted groups, and what a filter drops")
        expect(verdict.reason, "a rejection has no reason", "put returns why")
        expect(reason in verdict.reason, f"the reason is {verdict.reason!r}", "give the filter's own reason")
    puts = [asyncio.ensure_future(buffer.put(group)) for group in (stale, kept)]
    got = await soon(buffer.get(5), "get", "skip what is stale")
    if got is not kept:
        got = await soon(buffer.get(5), "get", "skip what is stale")
    expect(got is kept, "a stale group was given out", "ask the staleness policy in get, at the version given")
    await asyncio.gather(*puts)
    told = {discard.group.number: discard for discard in buffer.discarded()}
    wanted = {0: Disposition.ABORTED, 1: Disposition.FILTERED, 2: Disposition.STALE}
    buffer.end()
    expect(await soon(buffer.get(5), "get", "after the end: None") is None, "more came out than was kept", "once each")
    told |= {discard.group.number: discard for discard in buffer.discarded()}
    dispositions = {number: discard.disposition for number, discard in told.items()}
    expect(dispositions == wanted, f"it told {dispositions}", "aborted and filtered at put, stale at get")
    reasons = {number: discard.reason for number, discard in told.items()}
    expect(all(reasons.values()), f"reasons: {reasons}", "every discard has its reason")
    expect(not buffer.discarded(), "a discard is told twice", "discarded() empties the list")


@check("buffer", Grade.GOLD, "whoever asked for discards is told of each before put or get goes on")
async def discards_are_told_at_once(subject: ComponentSubject) -> None:
    told: list[Discard] = []
    buffer = _buffer(subject, (_DropsEmpty(),), _Ages(), discarding=told.append)
    await soon(buffer.put(make_group(("a",), number=0)), "put", "reject, and do not wait")
    now = [discard.disposition for discard in told]
    expect(now == [Disposition.FILTERED], f"after put of a group that is dropped, {now} was told", "call discarding()")
    await soon(buffer.put(_group(1, version=1)), "put", "a batch fits into the buffer")
    buffer.end()
    await soon(buffer.get(9), "get", "skip what is stale")
    now = [discard.disposition for discard in told]
    expect(now == [Disposition.FILTERED, Disposition.STALE], f"after get of a stale group: {now}", "call discarding()")
    kept = [discard.disposition for discard in buffer.discarded()]
    expect(kept == now, f"discarded() gives {kept}, told were {now}", "tell and keep the same")


@check("buffer", Grade.GOLD, "a group that the staleness policy changes is got as changed")
async def changed_groups(subject: ComponentSubject) -> None:
    changed = _group(0, version=4)
    buffer = _buffer(subject, (), _Changes(changed))
    await soon(buffer.put(_group(0)), "put", "a batch fits into the buffer")
    got = await soon(buffer.get(4), "get", "give what waits")
    expect(got is changed, "get gave the group as it was put", "give `verdict.instead or group`")


@check("buffer", Grade.GOLD, "ordered, it gives groups in the order of their numbers, or refuses at connect")
async def keeps_the_order(subject: ComponentSubject) -> None:
    try:
        buffer = _buffer(subject, ordered=True)
    except RequestError as error:
        inapplicable(f"it keeps no order: {error}")
    puts = [asyncio.ensure_future(buffer.put(_group(number))) for number in (1, 0, 3, 2)]
    got = [await soon(buffer.get(1), "get", "give group 0 first") for _ in puts]
    await asyncio.gather(*puts)
    numbers = [group.number for group in got]
    expect(numbers == [0, 1, 2, 3], f"put 1, 0, 3, 2, got {numbers}", "wait for the next number")


@check("buffer", Grade.GOLD, "end(error) reaches whoever waits in get, as that error")
async def errors_reach_the_driver(subject: ComponentSubject) -> None:
    buffer = _buffer(subject)
    waiting = asyncio.ensure_future(buffer.get(1))
    await settle()
    expect(not waiting.done(), "get of an empty buffer does not wait", "wait for a group or the end")
    error = RuntimeError("the rollout broke")
    buffer.end(error)
    done, _ = await asyncio.wait({waiting}, timeout=2)
    expect(done, "get still waits after end(error)", "wake it: the driver waits there")
    found = waiting.exception()
    expect(found is error, f"get raised {found!r}", "raise the very error that end was given")


@check("buffer", Grade.GOLD, "a waiting get ends with None when the rollout ends")
async def end_wakes_get(subject: ComponentSubject) -> None:
    buffer = _buffer(subject)
    waiting = asyncio.ensure_future(buffer.get(1))
    await settle()
    buffer.end()
    found = await soon(waiting, "get after end()", "wake whoever waits")
    expect(found is None, f"get gave {found!r:.100}", "None says that nothing is left")


@check("buffer", Grade.GOLD, "state is JSON, and restore brings back what waited or refuses to lose it")
async def resumes(subject: ComponentSubject) -> None:
    for waiting in (0, 2):
        buffer = _buffer(subject)
        groups = [_group(number) for number in range(waiting)]
        for group in groups:
            await soon(buffer.put(group), "put", "a batch fits into the buffer")
        state = json.loads(json.dumps(buffer.state(), allow_nan=False))
        saved = buffer.waiting()
        resumed = _buffer(subject)
        try:
            resumed.restore(state, saved)
        except RequestError:
            expect(waiting and not saved, "it refuses a state in which nothing is lost", "restore what it can")
            continue
        resumed.end()
        got = sorted(group.number for group in await soon(_rest(resumed), "get", "give what was restored"))
        expect(got == list(range(waiting)), f"{waiting} groups waited, {got} came back", "bring back all, or refuse")


@check("buffer", Grade.GOLD, "its metrics are finite numbers by name")
async def metrics(subject: ComponentSubject) -> None:
    buffer = _buffer(subject, (_DropsEmpty(),), _Ages())
    for moment in range(3):
        found = buffer.metrics()
        wrong = {name: value for name, value in found.items() if not _is_finite(value)}
        expect(not wrong, f"metrics: {wrong}", "count, and give 0 where there is nothing to average")
        names = all(isinstance(name, str) and name.startswith("buffer/") for name in found)
        expect(names, f"metrics are named {sorted(found)}", "begin every name with buffer/")
        if moment == 0:
            await soon(buffer.put(_group(0)), "put", "a batch fits into the buffer")
            await soon(buffer.put(make_group(("a",), number=1)), "put", "reject, and do not wait")
        else:
            buffer.end()
            await soon(buffer.get(9), "get", "give what waits, or None")


class _Mends:
    """A staleness policy of this page: wants the first trajectory again, once."""

    def judge(self, group: Group, version: int) -> Verdict:
        whole = len(group.trajectories) == 2 and group.number == 0
        return Verdict(False, "half is old", again=(0,)) if whole else Verdict(True)


@check("buffer", Grade.GOLD, "a group of which a part is stale is told in two parts, or as stale whole")
async def parts_are_told(subject: ComponentSubject) -> None:
    told: list[Discard] = []
    buffer = _buffer(subject, (), _Mends(), discarding=told.append)
    group = _group(0)
    await soon(buffer.put(group), "put", "a batch fits into the buffer")
    getting = asyncio.ensure_future(buffer.get(5))  # whichever of two it would give first, now it meets the stale one
    await settle()
    await soon(buffer.put(_group(1)), "put", "a batch fits into the buffer")
    got = await soon(getting, "get", "skip what is stale")
    expect(got is not None and got.number == 1, "the stale group came out", "keep is False: do not give it")
    expect(len(told) == 1 and told[0].disposition is Disposition.STALE, f"it told {told}", "one discard, stale")
    kept = told[0].kept
    given = [t.id for part in (told[0].group, kept) if part is not None for t in part.trajectories]
    expect(sorted(given) == sorted(t.id for t in group.trajectories), f"{given} are on record", "each exactly once")
    if kept is not None:
        expect([t.index for t in kept.trajectories] == [1], "it kept others than it was told", "again: index 0")


@check("buffer", Grade.GOLD, "a group whose attempts were cancelled is not kept, and told as cancelled or aborted")
async def cancelled_groups(subject: ComponentSubject) -> None:
    buffer = _buffer(subject)
    group = make_group(("", "b"), statuses=(Status.ABORTED, Status.COMPLETED))
    first = replace(group.trajectories[0], metadata={CANCELLED: "it would be too old"})
    verdict = await soon(buffer.put(group.replacing((first, group.trajectories[1]))), "put", "it must not wait")
    expect(not verdict.keep and verdict.reason, f"it said {verdict!r:.100}", "reject it, with the reason")
    dispositions = [discard.disposition for discard in buffer.discarded()]
    known = dispositions in ([Disposition.CANCELLED], [Disposition.ABORTED])
    expect(known, f"it told {dispositions}", "cancelled; a buffer that does not know it finds the group aborted")


@check("buffer", Grade.GOLD, "one that can be resized takes in more at once, or fewer, and loses none")
async def resizes(subject: ComponentSubject) -> None:
    buffer = _buffer(subject)
    resize = getattr(buffer, "resize", None)
    if resize is None:
        inapplicable("its size is fixed")
    puts = [asyncio.ensure_future(buffer.put(_group(number))) for number in range(20)]
    resize(6)
    await settle()
    expect(len(buffer.waiting()) == 6, f"resized to 6, {len(buffer.waiting())} wait", "let in who waits outside")
    resize(2)
    for left in range(20, 0, -1):
        await soon(buffer.get(1), "get", "none is lost by a smaller size")
        await settle()
        most = max(2, 6 - (21 - left))
        expect(
            len(buffer.waiting()) <= most, f"{len(buffer.waiting())} wait in 2 places", "let nobody in until it fits"
        )
    await asyncio.gather(*puts)


def _buffer(
    subject: ComponentSubject,
    filters: Several[Filter] = (),
    staleness: Staleness | None = None,
    *,
    ordered: bool = False,
    discarding: Callable[[Discard], None] | None = None,
) -> Buffer:
    buffer: Buffer = subject.build()
    buffer.connect(PER_STEP, filters, staleness, ordered=ordered, discarding=discarding)
    return buffer


def _group(number: int, version: int = 1) -> Group:
    return make_group(("yes", "no"), (1.0, 0.0), number=number, version=version)


async def _rest(buffer: Buffer) -> list[Group]:
    groups = []
    while (group := await buffer.get(1)) is not None:
        groups.append(group)
    return groups


def _is_finite(value: object) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)
