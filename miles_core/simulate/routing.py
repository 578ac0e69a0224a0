"""Which engine a group goes to: that with the fewest requests, as in `rollout.fleet`, but cheap for thousands."""

from __future__ import annotations

import heapq
from collections import OrderedDict

from miles_core.rollout.fleet import REMEMBERED_SESSIONS


class Routing:
    """A group stays where its first attempt went; of engines with equally few requests, that one is chosen which was
    given the fewest groups."""

    def __init__(self, engines: int) -> None:
        self._active = [0] * engines
        self._given = [0] * engines
        self._home: OrderedDict[int, int] = OrderedDict()
        self._queue = [(0, 0, engine) for engine in range(engines)]

    def start(self, group: int) -> tuple[int, bool]:
        """The engine for a request of that group, and whether it is the first one there."""
        engine = self._home.get(group)
        first = engine is None
        if engine is None:
            engine = self._home[group] = self._least_busy()
            self._given[engine] += 1
            if len(self._home) > REMEMBERED_SESSIONS:
                self._home.popitem(last=False)
        self._move(engine, 1)
        return engine, first

    def end(self, engine: int) -> None:
        self._move(engine, -1)

    def _least_busy(self) -> int:
        """What the queue says of an engine is true of one entry only; the others are of earlier times."""
        while self._queue[0][:2] != (self._active[self._queue[0][2]], self._given[self._queue[0][2]]):
            heapq.heappop(self._queue)
        return self._queue[0][2]

    def _move(self, engine: int, by: int) -> None:
        self._active[engine] += by
        heapq.heappush(self._queue, (self._active[engine], self._given[engine], engine))
        if len(self._queue) > 8 * len(self._active) + 64:
            self._queue = [(active, self._given[each], each) for each, active in enumerate(self._active)]
            heapq.heapify(self._queue)
