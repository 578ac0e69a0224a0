"""Modelled engines: how long a request takes beside others, and which weight version samples each of its tokens.

All requests at an engine go forward token by token together. A step takes longer the more of them there are; a prompt
is computed before anything else goes on; what does not fit waits. Between two events nothing changes, so that the cost
of a request does not depend on its length.
"""

from __future__ import annotations

import asyncio
import heapq
from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from miles_core.contracts.engine import PauseMode
from miles_core.simulate.routing import Routing
from miles_core.simulate.service import Service

Pieces = list[tuple[int, int]]
"""What was sampled: so many tokens by that weight version, in order."""

_LONG_HISTORY = 64
_ROUNDING = 1e-6  # of a token


@dataclass(slots=True, eq=False)
class _Request:
    """`prompt`: tokens to compute first, `began`: how far the engine was then, both known once it is let in."""

    tokens: int
    prompt: int
    done: asyncio.Future[tuple[Pieces, bool]]
    began: float = 0.0


class ModelledEngine:
    """`progress` counts the tokens that a request would have got that was there all the time."""

    def __init__(self, service: Service, fleet: ModelledFleet, place: int) -> None:
        self._service, self._fleet, self._place = service, fleet, place
        self._loop = asyncio.get_running_loop()
        self._progress = 0.0
        self._last = self._ready = self._loop.time()
        self._ends: list[tuple[float, int, _Request]] = []
        self._waiting: deque[_Request] = deque()
        self._history: list[tuple[float, int]] = [(0.0, fleet.version)]
        self._prompts = 0  # tokens of the prompts of those that are let in
        self._started = 0.0  # sum of their `began`
        self._number = 0
        self._timer: asyncio.TimerHandle | None = None
        self.busy_seconds = 0.0
        self.slot_seconds = 0.0

    async def serve(self, tokens: int, prompt: int) -> tuple[Pieces, bool]:
        """The pieces of a request, and whether it was aborted before its end. Cancelling it frees its slot."""
        request = _Request(tokens, prompt, self._loop.create_future())
        self._advance()
        if len(self._ends) < self._service.slots:
            self._let_in(request)
            self._set_timer()
        else:
            self._waiting.append(request)
        try:
            return await request.done
        except asyncio.CancelledError:
            self._forget_request(request)
            raise

    def interrupt(self, seconds: float, pause: PauseMode, version: int) -> None:
        """New weights: nothing is sampled for so many seconds, and then by `version`."""
        self._advance()
        self._ready = max(self._ready, self._last) + seconds
        if pause is PauseMode.ABORT:
            self._abort()
        elif pause is PauseMode.RETRACT:
            tokens = self._prompts + len(self._ends) * self._progress - self._started
            self._ready += tokens / self._service.prefill_tokens_per_second
        self._history.append((self._progress, version))
        if len(self._history) > _LONG_HISTORY:
            self._forget()
        self._set_timer()

    def catch_up(self) -> None:
        """Let the counters say what is until now."""
        self._advance()

    def _advance(self) -> None:
        now = self._loop.time()
        if self._ends:
            count = len(self._ends)
            if now > self._ready:
                forward = (now - max(self._last, self._ready)) / self._service.step(count)
                self._progress = min(self._progress + forward, self._ends[0][0])
            self.busy_seconds += now - self._last
            self.slot_seconds += count * (now - self._last)
        self._last = now

    def _let_in(self, request: _Request) -> None:
        if not self._ends:
            self._progress, self._started, self._history = 0.0, 0.0, [(0.0, self._fleet.version)]
            self._fleet.working[self._place] = self
        self._ready = max(self._ready, self._last, self._fleet.ready)
        self._ready += request.prompt / self._service.prefill_tokens_per_second
        request.began = self._progress
        self._prompts += request.prompt
        self._started += request.began
        self._number += 1
        heapq.heappush(self._ends, (self._progress + request.tokens, self._number, request))

    def _set_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._ends:
            steps = self._ends[0][0] - self._progress
            when = max(self._last, self._ready) + steps * self._service.step(len(self._ends))
            self._timer = self._loop.call_at(when, self._finish)

    def _finish(self) -> None:
        self._timer = None
        self._advance()
        self._progress = self._ends[0][0]  # the timer is set anew with each change, so this one is due
        while self._ends and self._ends[0][0] <= self._progress + _ROUNDING:
            _, _, request = heapq.heappop(self._ends)
            self._leave(request, aborted=False)
        self._fill()

    def _forget_request(self, request: _Request) -> None:
        """Whoever waited for it was cancelled."""
        if request in self._waiting:
            self._waiting.remove(request)
            return
        self._advance()
        left = [entry for entry in self._ends if entry[2] is not request]
        if len(left) == len(self._ends):
            return  # it had ended
        self._ends = left
        heapq.heapify(self._ends)
        self._prompts -= request.prompt
        self._started -= request.began
        self._fill()

    def _fill(self) -> None:
        """Let in what waits, and wake up at the next end."""
        while self._waiting and len(self._ends) < self._service.slots:
            self._let_in(self._waiting.popleft())
        if not self._ends:
            self._fleet.working.pop(self._place, None)
        self._set_timer()

    def _abort(self) -> None:
        for _, _, request in self._ends:
            self._leave(request, aborted=True)
        for request in self._waiting:
            _answer(request, [], aborted=True)
        self._ends.clear()
        self._waiting.clear()
        self._fleet.working.pop(self._place, None)

    def _leave(self, request: _Request, aborted: bool) -> None:
        self._prompts -= request.prompt
        self._started -= request.began
        tokens = min(request.tokens, int(self._progress - request.began)) if aborted else request.tokens
        _answer(request, self._pieces(request.began, tokens), aborted)

    def _pieces(self, began: float, tokens: int) -> Pieces:
        """Which versions sampled the `tokens` since the engine was at `began`."""
        pieces: Pieces = []
        place, given = bisect_right(self._history, began, key=_where) - 1, 0
        while given < tokens:
            version = self._history[place][1]
            place += 1
            until = tokens
            if place < len(self._history):
                until = min(tokens, int(self._history[place][0] - began + _ROUNDING))
            if until > given:
                pieces.append((until - given, version))
                given = until
        return pieces

    def _forget(self) -> None:
        """Versions that ended before any request here began."""
        oldest = min((request.began for _, _, request in self._ends), default=self._progress)
        self._history = self._history[bisect_right(self._history, oldest, key=_where) - 1 :]


@dataclass(eq=False)
class ModelledFleet:
    """So many engines behind one router. Must be made on the running loop."""

    service: Service
    count: int
    version: int = 1
    ready: float = 0.0
    working: dict[int, ModelledEngine] = field(default_factory=dict)  # those with requests

    def __post_init__(self) -> None:
        self._routing = Routing(self.count)
        self._engines = [ModelledEngine(self.service, self, place) for place in range(self.count)]

    async def serve(self, group: int, tokens: int, prompt: int) -> tuple[Pieces, bool]:
        """A request of a group. Its prompt is computed once for the group, which stays at one engine."""
        engine, first = self._routing.start(group)
        try:
            return await self._engines[engine].serve(tokens, prompt if first else 0)
        finally:
            self._routing.end(engine)

    async def publish(self, version: int, pause: PauseMode) -> None:
        """All engines sample by `version` when this returns."""
        loop = asyncio.get_running_loop()
        self.version, self.ready = version, loop.time() + self.service.publish_seconds
        for engine in list(self.working.values()):
            engine.interrupt(self.service.publish_seconds, pause, version)
        await asyncio.sleep(self.service.publish_seconds)

    def worked(self) -> tuple[float, float]:
        """Engine seconds with any request, and slot seconds with one, until now."""
        for engine in self._engines:
            engine.catch_up()
        return sum(e.busy_seconds for e in self._engines), sum(e.slot_seconds for e in self._engines)


def _answer(request: _Request, pieces: Pieces, aborted: bool) -> None:
    if not request.done.done():  # its attempt may have been cancelled
        request.done.set_result((pieces, aborted))


def _where(entry: tuple[float, int]) -> Any:
    return entry[0]
