"""A bounded buffer, newest first."""

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from miles_core import BuildContext, Discard, Disposition, Filter, Group, RequestError, Staleness, Status, Verdict

from miles_plugin_xyz.options import XyzOptions


class XyzBuffer:
    """Aborted and filtered groups are discarded at put, stale ones at get; each is counted. See `miles_core.Buffer`."""

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self._factor = options.capacity
        self._waiting: list[Group] = []
        self._changed = asyncio.Event()
        self._ended = False
        self._error: BaseException | None = None
        self._discards: list[Discard] = []
        self._counts: Counter[str] = Counter()

    def connect(
        self,
        groups_per_step: int,
        filters: Sequence[Filter],
        staleness: Staleness | None,
        *,
        ordered: bool = False,
        discarding: Callable[[Discard], None] | None = None,
    ) -> None:
        if ordered:
            raise RequestError(
                "the schedule wants groups in the order of their numbers",
                where="buffer xyz, which gives the newest",
                mend="choose another buffer or schedule",
            )
        self._discarding = discarding
        self._capacity = max(1, int(self._factor * groups_per_step))
        self._filters = tuple(filters)
        self._staleness = staleness

    async def put(self, group: Group) -> Verdict:
        if group.aborted:
            return self._discard(group, Disposition.ABORTED, "aborted")
        if all(trajectory.status is Status.FAILED for trajectory in group.trajectories):
            return self._discard(group, Disposition.FAILED, "every attempt failed")
        for each in self._filters:
            verdict = each.judge(group)
            if not verdict.keep:
                return self._discard(group, Disposition.FILTERED, verdict.reason)
        await self._until(lambda: len(self._waiting) < self._capacity)
        self._waiting.append(group)
        self._changed.set()
        return Verdict(True)

    async def get(self, version: int) -> Group | None:
        while True:
            await self._until(lambda: bool(self._waiting) or self._ended)
            if self._error is not None:
                raise self._error
            if not self._waiting:
                return None
            group = self._waiting.pop()
            self._changed.set()
            verdict = self._staleness.judge(group, version) if self._staleness else Verdict(True)
            if verdict.keep:
                return verdict.instead or group
            self._discard(group, Disposition.STALE, verdict.reason)

    def end(self, error: BaseException | None = None) -> None:
        self._ended, self._error = True, error
        self._changed.set()

    def waiting(self) -> list[Group]:
        return list(self._waiting)

    def discarded(self) -> list[Discard]:
        discards, self._discards = self._discards, []
        return discards

    def metrics(self) -> dict[str, float]:
        counts, self._counts = self._counts, Counter()
        metrics: dict[str, float] = {f"buffer/{name}": count for name, count in sorted(counts.items())}
        return {"buffer/aborted": 0, "buffer/stale": 0, **metrics, "buffer/queue_size": len(self._waiting)}

    def state(self) -> Mapping[str, Any]:
        return {"waiting": [group.number for group in self._waiting]}

    def restore(self, state: Mapping[str, Any], groups: Sequence[Group] = ()) -> None:
        """Better no resumed run than one that lost groups silently."""
        given = {group.number: group for group in groups}
        if lost := [number for number in state["waiting"] if number not in given]:
            raise RequestError(f"groups {lost} waited in the buffer at the checkpoint and were not saved")
        self._waiting = [given[number] for number in state["waiting"]]
        self._ended, self._error = False, None

    async def _until(self, ready: Callable[[], bool]) -> None:
        while not ready():
            self._changed.clear()
            await self._changed.wait()

    def _discard(self, group: Group, disposition: Disposition, reason: str) -> Verdict:
        name = f"filtered/{reason}" if disposition is Disposition.FILTERED else disposition.value
        self._counts[name] += 1
        discard = Discard(group, disposition, reason)
        self._discards.append(discard)
        if self._discarding is not None:
            self._discarding(discard)
        return Verdict(False, reason)
