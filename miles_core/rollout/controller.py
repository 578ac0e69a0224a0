"""The controller of the `adaptive` schedule: from what was measured to what is changed, as one pure function.

It changes one thing at a time and looks at the next period before it goes on. What is sought is that the trainer works:
a change after which it worked less is taken back and left alone for a while. The rules, in the order in which they are
asked:

1. more is thrown away as too old than the trainer waits   fewer trajectories in flight, or new weights less often
2. the trainer waits and the slots are full                more trajectories in flight
3. the trainer waits and slots are empty                   new weights less often, so that more may be made ahead
4. publications take long                                  the same
5. the trainer hardly waits, and what it gets is old       fewer groups that wait, then fewer in flight: younger data
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

Dial = Literal["in_flight", "room", "update_every"]

HOLD = 10
"""Periods in which a change that was taken back is not tried again."""
UP, DOWN = 1.5, 0.8
"""By what trajectories in flight and room are multiplied."""
LOSS = 0.03
"""A change that costs more than this share of the trainer's work is taken back."""


@dataclass(frozen=True, slots=True)
class Dials:
    """What can be moved: trajectories in flight at most, groups that the buffer holds (0: not ours to move), steps
    between two publications."""

    in_flight: int
    room: int
    update_every: int


@dataclass(frozen=True, slots=True)
class Bounds:
    """How far, lowest and highest; and what the numbers are made of. `tolerance` is the idle share that is no matter.
    With `max_staleness`, no more than fits under it is ever in flight."""

    group_size: int
    groups_per_step: int
    in_flight: tuple[int, int]
    room: tuple[int, int] | None
    update_every: tuple[int, int]
    max_staleness: int | None = None
    tolerance: float = 0.05


@dataclass(frozen=True, slots=True)
class Measured:
    """Of one period. Shares of time: the trainer waited, publications took, slots were empty; of groups: too old.
    `staleness` is the mean of what was trained, `queue` the groups that waited."""

    trainer_idle: float
    publishing: float
    engine_idle: float
    wasted: float
    staleness: float
    queue: float

    @property
    def work(self) -> float:
        """The share of time in which the trainer trained."""
        return 1 - self.trainer_idle - self.publishing


@dataclass(frozen=True, slots=True)
class Move:
    """A change that is being tried: where the dials stood, and how much the trainer worked then."""

    dial: Dial
    up: bool
    before: Dials
    work: float


@dataclass(frozen=True, slots=True)
class Memory:
    """What the controller remembers: the last change, and changes that are left alone for so many periods."""

    last: Move | None = None
    held: tuple[tuple[Dial, bool, int], ...] = ()

    def aged(self) -> Memory:
        return Memory(None, tuple((dial, up, left - 1) for dial, up, left in self.held if left > 1))

    def allows(self, dial: Dial, up: bool) -> bool:
        return all((dial, up) != (held, way) for held, way, _ in self.held)


@dataclass(frozen=True, slots=True)
class Decision:
    """Where the dials are now, what is remembered, and a sentence for each change. Without any, `unchanged`
    says why."""

    dials: Dials
    memory: Memory
    said: tuple[str, ...] = ()
    unchanged: str = ""


def decide(dials: Dials, memory: Memory, measured: Measured, bounds: Bounds) -> Decision:
    """One period later. The same arguments give the same decision."""
    aged = memory.aged()
    if memory.last is not None and (why := _worse(memory.last, measured)):
        move = memory.last
        held = Memory(None, (*aged.held, (move.dial, move.up, HOLD)))
        return Decision(move.before, held, (_sentence(move.dial, dials, move.before, why),))
    wishes = list(_wishes(measured, bounds))
    for dial, up, why in wishes:
        moved = _moved(dials, dial, up, bounds)
        if moved != dials and aged.allows(dial, up):
            last = Move(dial, up, dials, measured.work)
            return Decision(moved, replace(aged, last=last), (_sentence(dial, dials, moved, why),))
    return Decision(dials, aged, unchanged=_why_not(dials, wishes, measured, bounds))


def _wishes(now: Measured, bounds: Bounds) -> Iterator[tuple[Dial, bool, str]]:
    """What would help, most urgent first, with the measurement that says so."""
    enough = bounds.tolerance
    waits = f"the trainer waited {_percent(now.trainer_idle)} of the time"
    if now.wasted > max(enough, now.trainer_idle):
        why = f"{_percent(now.wasted)} of the groups that were made were too old"
        yield "in_flight", False, why
        yield "update_every", True, why
    if now.trainer_idle > enough and now.engine_idle <= max(enough, 0.5 * now.trainer_idle):
        yield "in_flight", True, f"{waits} and the slots were full (engines idle {_percent(now.engine_idle)})"
    if now.trainer_idle > enough and now.engine_idle > enough:
        yield "update_every", True, f"{waits} although slots were empty (engines idle {_percent(now.engine_idle)})"
    if now.publishing > enough:
        yield "update_every", True, f"publications took {_percent(now.publishing)} of the time"
    if now.trainer_idle <= enough / 2 and now.wasted <= enough and now.staleness > 1:
        why = (
            f"the trainer waited only {_percent(now.trainer_idle)} of the time, and what it was given was "
            f"{now.staleness:.1f} versions old"
        )
        if now.queue > bounds.groups_per_step:
            yield "room", False, why
        yield "in_flight", False, why


def _why_not(dials: Dials, wishes: list[tuple[Dial, bool, str]], now: Measured, bounds: Bounds) -> str:
    if not wishes:
        return (
            f"the trainer waited {_percent(now.trainer_idle)} of the time, publications took "
            f"{_percent(now.publishing)}, {_percent(now.wasted)} of the groups were too old: nothing to mend with a "
            f"tolerance of {_percent(bounds.tolerance)}"
        )
    wanted = dict.fromkeys(f"{'more' if up else 'less'} {dial} than {getattr(dials, dial)}" for dial, up, _ in wishes)
    return f"{wishes[0][2]}, but the bounds, or what was tried before, do not let it have {' or '.join(wanted)}"


def _worse(move: Move, now: Measured) -> str:
    """Why a change is taken back; "" when it is not."""
    if now.work >= (1 - LOSS) * move.work:
        return ""
    return f"the trainer then worked {_percent(now.work)} of the time, before {_percent(move.work)}"


def _moved(dials: Dials, dial: Dial, up: bool, bounds: Bounds) -> Dials:
    """One step of a dial, inside its bounds and what `max_staleness` leaves room for."""
    if dial == "in_flight":
        wanted = _scaled(dials.in_flight, up, bounds.group_size)
        least, most = bounds.in_flight
        return replace(dials, in_flight=max(least, min(wanted, most, _fits(dials.update_every, bounds))))
    if dial == "room":
        if bounds.room is None:
            return dials
        return replace(dials, room=_within(_scaled(dials.room, up, 1), bounds.room))
    every = _within(dials.update_every + (1 if up else -1), bounds.update_every)
    return replace(dials, update_every=every, in_flight=min(dials.in_flight, _fits(every, bounds)))


def _fits(update_every: int, bounds: Bounds) -> int:
    """Trajectories that may be under way without being too old when their turn comes."""
    if bounds.max_staleness is None:
        return bounds.in_flight[1]
    return (bounds.max_staleness * update_every + 1) * bounds.groups_per_step * bounds.group_size


def _scaled(value: int, up: bool, unit: int) -> int:
    """Multiplied, in whole units, by one unit at least."""
    units = value / unit
    moved = max(math.ceil(units * UP), units + 1) if up else min(math.floor(units * DOWN), units - 1)
    return int(moved * unit)


def _within(value: int, bounds: tuple[int, int]) -> int:
    return max(bounds[0], min(value, bounds[1]))


def _sentence(dial: Dial, before: Dials, after: Dials, why: str) -> str:
    return f"{dial} {getattr(before, dial)} → {getattr(after, dial)}: {why}"


def _percent(share: float) -> str:
    return f"{100 * max(share, 0.0):.0f} %"
