"""The `fifo` buffer: bounded, and the one place where groups are discarded, in exactly three cases, each counted.

At put: aborted (infrastructure failed), cancelled (it would have been stale) or failed (every attempt raised), and
rejected by a filter. At get: stale, whole or in part: the policy may ask for some of its trajectories again.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Several
from typing import Any, Literal

from pydantic import Field, PositiveInt

from miles_core.contracts.component import BuildContext
from miles_core.contracts.options import Options
from miles_core.contracts.rollout import Discard, Filter, Staleness, Verdict
from miles_core.errors import RequestError
from miles_core.rollout.order import ArrivalOrder, Order, SubmissionOrder
from miles_core.rollout.passage import Passage
from miles_core.types.trajectory import Disposition, Group, Status

LOST = (Status.ABORTED, Status.FAILED)
SMALLEST_PARTIAL = 2
"""Trajectories that a partial group has at least: one alone has nothing to be compared with."""


class FifoOptions(Options):
    """How much may wait, and what becomes of groups that cannot be used as they are."""

    capacity: float = Field(default=2.0, gt=0, description="finished groups that may wait, as a multiple of a batch")
    recycle: tuple[Literal["aborted", "stale"], ...] = Field(
        default=(),
        description="discarded groups whose tasks are drawn again instead of new ones; cancelled ones count as stale",
    )
    recycle_times: PositiveInt = Field(default=3, description="how often the same draw of a task comes back at most")
    allow_partial_groups: bool = Field(
        default=False, description="keep a group that lost trajectories to aborts, when two or more remain"
    )

    def card(self) -> Mapping[str, str]:
        lost = "is kept with the rest" if self.allow_partial_groups else "is discarded whole"
        return {"a group with an aborted trajectory": lost}


class FifoBuffer:
    """See `contracts.rollout.Buffer`."""

    def __init__(self, options: FifoOptions, context: BuildContext) -> None:
        self._options = options
        self._news = asyncio.Event()
        self._ended = False
        self._error: BaseException | None = None
        self._discards: list[Discard] = []
        self._returned: Counter[tuple[str, int]] = Counter()
        self._passage = Passage()
        self._version = 0

    def connect(
        self,
        groups_per_step: int,
        filters: Several[Filter],
        staleness: Staleness | None,
        *,
        ordered: bool = False,
        discarding: Callable[[Discard], None] | None = None,
    ) -> None:
        capacity = max(1, int(self._options.capacity * groups_per_step))
        self._order: Order = SubmissionOrder(capacity) if ordered else ArrivalOrder(capacity)
        self._filters = tuple(filters)
        self._staleness = staleness
        self._discarding = discarding

    def resize(self, groups: int) -> None:
        """See `contracts.beside.Resizes`."""
        self._order.resize(max(1, groups))

    async def put(self, group: Group) -> Verdict:
        if why := group.cancelled:
            return self._reject(group, Disposition.CANCELLED, why)
        lost = sum(trajectory.status in LOST for trajectory in group.trajectories)
        remain = len(group.trajectories) - lost
        if group.aborted and not (self._options.allow_partial_groups and remain >= SMALLEST_PARTIAL):
            return self._reject(group, Disposition.ABORTED, "aborted")
        if lost and not remain:
            return self._reject(group, Disposition.FAILED, "every attempt failed")
        for judge in self._filters:
            verdict = judge.judge(group)
            if not verdict.keep:
                return self._reject(group, Disposition.FILTERED, verdict.reason)
        if lost:
            self._passage.count("partial")
        await self._order.enter(group)
        self._news.set()
        return Verdict(True)

    async def get(self, version: int) -> Group | None:
        self._version = version
        while True:
            if self._error is not None:
                raise self._error
            group = self._order.leave(self._ended)
            if group is None:
                if self._ended:
                    return None
                self._news.clear()
                await self._news.wait()
                continue
            verdict = self._staleness.judge(group, version) if self._staleness else Verdict(True)
            self._passage.age(group, version)
            if verdict.keep:
                self._passage.take(group, verdict.instead)
                self._returned.pop(_draw_of(group), None)
                return verdict.instead or group
            if verdict.again and self._discarding is not None:
                self._have_again(group, verdict)
            else:
                self._discard(group, Disposition.STALE, verdict.reason)

    def end(self, error: BaseException | None = None) -> None:
        self._ended = True
        self._error = error
        self._news.set()

    def waiting(self) -> list[Group]:
        return self._order.groups()

    def discarded(self) -> list[Discard]:
        discards, self._discards = self._discards, []
        return discards

    def metrics(self) -> dict[str, float]:
        groups = self._order.groups()
        waiting = [self._version - g.oldest_version for g in groups if g.oldest_version is not None]
        return {
            "buffer/queue_size": len(groups),
            **self._passage.metrics(),
            "buffer/waiting_staleness_mean": sum(waiting) / len(waiting) if waiting else 0.0,
            "buffer/waiting_staleness_max": max(waiting, default=0),
        }

    def state(self) -> Mapping[str, Any]:
        returned = [[task, draw, times] for (task, draw), times in self._returned.items()]
        parts = {"order": dict(self._order.state()), "passage": dict(self._passage.state()), "returned": returned}
        waiting = [group.number for group in self._order.groups()]
        return {"waiting": waiting, **{name: part for name, part in parts.items() if part}}

    def restore(self, state: Mapping[str, Any], groups: Several[Group] = ()) -> None:
        """Raises RequestError when groups waited that are not given: they would be lost."""
        lost = Counter(state["waiting"]) - Counter(group.number for group in groups)
        if lost:
            raise RequestError(f"groups {sorted(lost)} waited in the buffer at the checkpoint and were not saved")
        if "order" in state or groups:
            self._order.restore(state.get("order", {}), groups)
        self._passage.restore(state.get("passage", {}))
        self._returned = Counter({(task, draw): times for task, draw, times in state.get("returned", ())})
        self._ended, self._error = False, None

    def _reject(self, group: Group, disposition: Disposition, reason: str) -> Verdict:
        """At put."""
        self._order.skip(group.number)
        self._discard(group, disposition, reason)
        self._news.set()  # a group behind it may be due now
        return Verdict(False, reason)

    def _discard(self, group: Group, disposition: Disposition, reason: str) -> None:
        self._passage.discard(group, disposition, reason)
        self._tell(Discard(group, disposition, reason, self._comes_back(group, disposition)))

    def _have_again(self, group: Group, verdict: Verdict) -> None:
        """The stale trajectories are thrown away; a new group is made of the others and of new ones."""
        stale = group.replacing(tuple(t for t in group.trajectories if t.index in verdict.again))
        kept = group.replacing(tuple(t for t in group.trajectories if t.index not in verdict.again))
        self._passage.discard_part(stale)
        self._tell(Discard(stale, Disposition.STALE, verdict.reason, kept=kept))

    def _tell(self, discard: Discard) -> None:
        self._discards.append(discard)
        if discard.kept is not None or (discard.disposition is Disposition.STALE and discard.recycle):
            self._ended = False
        if self._discarding is not None:
            self._discarding(discard)

    def _comes_back(self, group: Group, disposition: Disposition) -> bool:
        draw = _draw_of(group)
        kind = Disposition.STALE if disposition is Disposition.CANCELLED else disposition
        if kind.value in self._options.recycle and self._returned[draw] < self._options.recycle_times:
            self._returned[draw] += 1
            return True
        self._returned.pop(draw, None)
        return False


def _draw_of(group: Group) -> tuple[str, int]:
    return group.task.id, group.draw
