"""The `fifo` buffer: bounded, first in first out; discards groups in exactly three cases and counts each."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Mapping
from collections.abc import Sequence as Several
from typing import Any

from pydantic import Field

from miles_core.contracts.component import BuildContext
from miles_core.contracts.options import Options
from miles_core.contracts.rollout import Discard, Filter, Staleness, Verdict
from miles_core.errors import RequestError
from miles_core.types.trajectory import Disposition, Group


class FifoOptions(Options):
    """How much may wait."""

    capacity: float = Field(default=2.0, gt=0, description="finished groups that may wait, as a multiple of a batch")


class FifoBuffer:
    """See `contracts.rollout.Buffer`. Aborted and filtered groups go at put, stale ones at get."""

    def __init__(self, options: FifoOptions, context: BuildContext) -> None:
        self._factor = options.capacity
        self._groups: deque[Group] = deque()
        self._changed = asyncio.Condition()
        self._ended = False
        self._error: BaseException | None = None
        self._discards: list[Discard] = []
        self._counts: Counter[str] = Counter()
        self._ages: list[int] = []
        self._version = 0

    def connect(self, groups_per_step: int, filters: Several[Filter], staleness: Staleness | None) -> None:
        self._capacity = max(1, int(self._factor * groups_per_step))
        self._filters = tuple(filters)
        self._staleness = staleness

    async def put(self, group: Group) -> Verdict:
        if group.aborted:
            return self._discard(group, Disposition.ABORTED, "aborted")
        for judge in self._filters:
            verdict = judge.judge(group)
            if not verdict.keep:
                return self._discard(group, Disposition.FILTERED, verdict.reason)
        async with self._changed:
            await self._changed.wait_for(lambda: len(self._groups) < self._capacity)
            self._groups.append(group)
            self._changed.notify_all()
        return Verdict(True)

    async def get(self, version: int) -> Group | None:
        self._version = version
        while True:
            async with self._changed:
                await self._changed.wait_for(lambda: self._groups or self._ended)
                if self._error is not None:
                    raise self._error
                if not self._groups:
                    return None
                group = self._groups.popleft()
                self._changed.notify_all()
            verdict = self._staleness.judge(group, version) if self._staleness else Verdict(True)
            if group.oldest_version is not None:
                self._ages.append(version - group.oldest_version)
            if verdict.keep:
                return group
            self._discard(group, Disposition.STALE, verdict.reason)

    def end(self, error: BaseException | None = None) -> None:
        self._ended = True
        self._error = error
        # Wake a waiting `get` from plain code: the condition needs its lock, so a task does it.
        self._wake = asyncio.get_running_loop().create_task(self._notify())

    def discarded(self) -> list[Discard]:
        discards, self._discards = self._discards, []
        return discards

    def metrics(self) -> dict[str, float]:
        waiting = [self._version - g.oldest_version for g in self._groups if g.oldest_version is not None]
        metrics: dict[str, float] = {
            "buffer/queue_size": len(self._groups),
            "buffer/aborted": self._counts.pop("aborted", 0),
            "buffer/stale": self._counts.pop("stale", 0),
            "buffer/staleness_mean": sum(self._ages) / len(self._ages) if self._ages else 0.0,
            "buffer/staleness_max": max(self._ages, default=0),
            "buffer/waiting_staleness_mean": sum(waiting) / len(waiting) if waiting else 0.0,
            "buffer/waiting_staleness_max": max(waiting, default=0),
        }
        metrics.update({f"buffer/{name}": count for name, count in sorted(self._counts.items())})
        self._counts.clear()
        self._ages.clear()
        return metrics

    def state(self) -> Mapping[str, Any]:
        return {"waiting": [group.number for group in self._groups]}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Raises RequestError when groups waited: their trajectories are not in the state, and would be lost."""
        if state["waiting"]:
            raise RequestError(f"groups {state['waiting']} waited in the buffer at the checkpoint and were not saved")
        self._ended, self._error = False, None

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _discard(self, group: Group, disposition: Disposition, reason: str) -> Verdict:
        name = disposition.value if disposition is not Disposition.FILTERED else f"filtered/{reason}"
        self._counts[name] += 1
        self._discards.append(Discard(group, disposition, reason))
        return Verdict(False, reason)
