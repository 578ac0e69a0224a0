"""In which order groups leave the buffer, and who may enter it: by arrival, or by submission.

Both are bounded by a capacity, wait without polling, and cost the same however many groups have passed.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Mapping
from collections.abc import Sequence as Several
from typing import Any, Protocol

from miles_core.types.trajectory import Group


class Order(Protocol):
    """The groups that wait."""

    async def enter(self, group: Group) -> None:
        """Begin to wait, once there is room: in the turn of the event loop in which this returns."""
        ...

    def skip(self, number: int) -> None:
        """The group of that number will never enter."""
        ...

    def leave(self, ended: bool) -> Group | None:
        """The group whose turn it is; None when there is none yet. `ended`: no other group will enter."""
        ...

    def groups(self) -> list[Group]:
        """What waits, in order."""
        ...

    def resize(self, capacity: int) -> None:
        """So many may wait from now on; nobody is sent away."""
        ...

    def state(self) -> Mapping[str, Any]: ...
    def restore(self, state: Mapping[str, Any], groups: Several[Group]) -> None: ...


class ArrivalOrder:
    """First in, first out."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._groups: deque[Group] = deque()
        self._outside: deque[asyncio.Future[None]] = deque()
        self._admitted = 0  # called in, and not yet in

    async def enter(self, group: Group) -> None:
        if self._outside or not self._room():
            called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._outside.append(called)
            try:
                await called
            except asyncio.CancelledError:
                self._give_back(called)
                raise
            self._admitted -= 1
        self._groups.append(group)

    def skip(self, number: int) -> None:
        pass

    def leave(self, ended: bool) -> Group | None:
        if not self._groups:
            return None
        group = self._groups.popleft()
        self._call_in()
        return group

    def groups(self) -> list[Group]:
        return list(self._groups)

    def resize(self, capacity: int) -> None:
        self._capacity = capacity
        self._call_in()

    def state(self) -> Mapping[str, Any]:
        return {}

    def restore(self, state: Mapping[str, Any], groups: Several[Group]) -> None:
        self._groups = deque(groups)

    def _room(self) -> bool:
        return len(self._groups) + self._admitted < self._capacity

    def _call_in(self) -> None:
        while self._outside and self._room():
            called = self._outside.popleft()
            if not called.done():  # its group may have been cancelled
                self._admitted += 1
                called.set_result(None)

    def _give_back(self, called: asyncio.Future[None]) -> None:
        """Whoever waited was cancelled, perhaps after it had been called in."""
        if called.cancelled():
            return
        self._admitted -= 1
        self._call_in()


class SubmissionOrder:
    """By number. A group waits for every lower number to leave or to be skipped.

    There is room for the `capacity` numbers from the next one that leaves: whoever is due always enters, so a full
    buffer cannot keep out the group that it waits for.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._next = 0
        self._groups: list[tuple[int, Group]] = []
        self._skipped: set[int] = set()
        self._outside: list[tuple[int, asyncio.Future[None]]] = []

    async def enter(self, group: Group) -> None:
        while group.number >= self._next + self._capacity:
            admitted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            heapq.heappush(self._outside, (group.number, admitted))
            await admitted
        heapq.heappush(self._groups, (group.number, group))

    def skip(self, number: int) -> None:
        self._skipped.add(number)
        self._advance()

    def leave(self, ended: bool) -> Group | None:
        if not self._groups or (self._groups[0][0] > self._next and not ended):
            return None
        number, group = heapq.heappop(self._groups)
        self._next = max(self._next, number + 1)
        self._advance()
        return group

    def groups(self) -> list[Group]:
        return [group for _, group in sorted(self._groups, key=lambda numbered: numbered[0])]

    def resize(self, capacity: int) -> None:
        self._capacity = capacity
        self._advance()

    def state(self) -> Mapping[str, Any]:
        return {"next": self._next, "skipped": sorted(self._skipped)}

    def restore(self, state: Mapping[str, Any], groups: Several[Group]) -> None:
        self._next = state["next"]
        self._skipped = set(state["skipped"])
        self._groups = [(group.number, group) for group in groups]
        heapq.heapify(self._groups)

    def _advance(self) -> None:
        while self._next in self._skipped:
            self._skipped.remove(self._next)
            self._next += 1
        while self._outside and self._outside[0][0] < self._next + self._capacity:
            _, admitted = heapq.heappop(self._outside)
            if not admitted.done():  # its group may have been cancelled
                admitted.set_result(None)
