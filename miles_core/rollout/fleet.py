"""A fleet: several engines behind one client. A session stays on its engine; a new one goes to the least busy.

An engine that dies loses its sessions to the others: what it was asked is asked again elsewhere, which changes no token
(noise is a function of the request), and what it had cached is computed anew. Both are told and counted. While none is
left but one is being started again, requests wait for it, but not for ever.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable
from collections.abc import Sequence as Several
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from miles_core.contracts.engine import Finish, GenerateRequest, GenerateResult
from miles_core.contracts.lifecycle import EventSink, NoEvents
from miles_core.errors import RequestError, WorkerDied

REMEMBERED_SESSIONS = 100_000


class NamedEngine(Protocol):
    """An engine that can be asked for tokens."""

    @property
    def name(self) -> str: ...
    async def generate(self, request: GenerateRequest) -> GenerateResult: ...


class Owner(Protocol):
    """Whoever starts and ends the engines of a fleet."""

    def coming(self) -> str:
        """The engines that may join yet, in words; "" when none will."""
        ...

    def died(self, engine: NamedEngine, error: WorkerDied) -> None:
        """An engine died under a request; the fleet has left it out already."""
        ...


class NoOwner:
    """Nobody starts an engine again."""

    def coming(self) -> str:
        return ""

    def died(self, engine: NamedEngine, error: WorkerDied) -> None:
        pass


@dataclass(frozen=True, slots=True)
class Endurance:
    """How long a request waits for an engine while there is none, in seconds, and how many engines may die while they
    work on it before it is aborted (None: any number)."""

    seconds: float = 600.0
    deaths: int | None = None


@dataclass(slots=True)
class _Home:
    """Where a session lives, and how many tokens of it that engine has seen. An engine that was started again under
    its old name is another one."""

    engine: NamedEngine
    tokens: int = 0


class Fleet:
    """`contracts.engine.EngineClient` over several engines. `events` is told `engine_lost` (engine, why, left),
    `session_moved` (session, engine, to, lost_tokens), `waiting` (who, whom, at_most) and `request_aborted` (request,
    deaths)."""

    def __init__(
        self,
        engines: Several[NamedEngine] = (),
        events: EventSink | None = None,
        *,
        owner: Owner | None = None,
        endurance: Endurance | None = None,
    ) -> None:
        self._engines: dict[str, NamedEngine] = {}
        self._events = events or NoEvents()
        self._owner = owner or NoOwner()
        self._endurance = endurance or Endurance()
        self._death: Exception = WorkerDied("the fleet has no engine")
        self._ended = False
        self._waiting = 0
        self._news = asyncio.Event()
        self._active: Counter[str] = Counter()
        self._given: Counter[str] = Counter()
        self._home: OrderedDict[str, _Home] = OrderedDict()
        self._counted: Counter[str] = Counter()
        self.answered: Callable[[str, GenerateResult], None] | None = None
        """Told of each answer that an engine gave, with the request's id, before anybody else sees it."""
        for engine in engines:
            self.join(engine)

    @property
    def serving(self) -> tuple[str, ...]:
        """The names of the engines that take requests."""
        return tuple(self._engines)

    def join(self, engine: NamedEngine) -> None:
        """The engine takes requests from now on. One that is here already changes nothing."""
        if self._engines.get(engine.name) is not engine:
            self._engines[engine.name] = engine
            self.look_again()

    def leave(self, engine: NamedEngine, error: WorkerDied) -> None:
        """The engine is not asked again: it died, or it is ended. It may not have joined yet."""
        if self._engines.get(engine.name) is engine:
            del self._engines[engine.name]
        self.lost(engine.name, error)

    def lost(self, name: str, error: WorkerDied) -> None:
        """An engine is gone."""
        self._death = error
        self._counted["lost"] += 1
        self._events.emit("engine_lost", engine=name, why=str(error), left=len(self._engines))
        self.look_again()

    def end(self, error: Exception) -> None:
        """No engine will serve again: whoever waits, and whoever asks from now on, gets `error`."""
        self._death, self._ended = error, True
        self._engines.clear()
        self.look_again()

    def look_again(self) -> None:
        """Whoever waits looks who serves and who may come."""
        self._news.set()
        self._news = asyncio.Event()

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """Raises WorkerDied when no engine is left and none comes, or none came in time."""
        if not request.affinity:
            raise RequestError("a request has no affinity key", mend="every GenerateRequest names its session")
        deaths = 0
        while True:
            if not self._engines:
                await self._some_engine(request)
            home = self._route(request)
            engine = home.engine
            self._active[engine.name] += 1
            try:
                result = await engine.generate(request)
            except WorkerDied as error:
                self._lose(engine, error)
                deaths += 1
                if deaths == self._endurance.deaths:
                    return self._abort(request, engine, deaths)
                continue
            finally:
                self._active[engine.name] -= 1
            home.tokens = len(request.tokens) + len(result.tokens)
            if self.answered is not None:
                self.answered(request.id, result)
            return result

    def metrics(self) -> dict[str, float]:
        """What was lost since the last call; nothing when nothing was."""
        counted, self._counted = self._counted, Counter()
        return {f"engine/{name}": float(count) for name, count in counted.items()}

    def _route(self, request: GenerateRequest) -> _Home:
        affinity = request.affinity
        home = self._home.get(affinity)
        if home is None:
            home = self._home[affinity] = _Home(self._least_busy())
            while len(self._home) > REMEMBERED_SESSIONS:
                self._home.popitem(last=False)
        elif self._engines.get(home.engine.name) is not home.engine:
            self._move(affinity, home, len(request.tokens))
        self._home.move_to_end(affinity)
        return home

    def _least_busy(self) -> NamedEngine:
        """Fewest active requests; of equals, that which was given the fewest sessions."""
        name = min(self._engines, key=lambda each: (self._active[each], self._given[each]))
        self._given[name] += 1
        return self._engines[name]

    def _move(self, affinity: str, home: _Home, prompt: int) -> None:
        to, before, lost = self._least_busy(), home.engine.name, min(home.tokens, prompt)
        home.engine, home.tokens = to, 0
        self._counted["moved_sessions"] += 1
        self._counted["lost_prefix_tokens"] += lost
        self._events.emit("session_moved", session=affinity, engine=before, to=to.name, lost_tokens=lost)

    def _lose(self, engine: NamedEngine, error: WorkerDied) -> None:
        """Told by each request that it had; the first one counts."""
        if self._engines.get(engine.name) is engine:
            self.leave(engine, error)
            self._owner.died(engine, error)

    def _abort(self, request: GenerateRequest, engine: NamedEngine, deaths: int) -> GenerateResult:
        """It may be what kills them: its attempt is aborted as infrastructure, and no engine is risked on it again."""
        self._counted["aborted_requests"] += 1
        self._events.emit("request_aborted", request=request.id, deaths=deaths)
        nothing, unlikely = np.empty(0, np.int32), np.empty(0, np.float32)
        return GenerateResult(request.id, engine.name, nothing, unlikely, (), Finish.ABORT)

    async def _some_engine(self, request: GenerateRequest) -> None:
        """Wait until one serves. Raises the last death when none comes, WorkerDied when none came in time."""
        if not self._ended and (coming := self._owner.coming()) and not self._waiting:
            self._events.emit("waiting", who="requests", whom=coming, at_most=self._endurance.seconds)
        self._waiting += 1
        try:
            async with asyncio.timeout(self._endurance.seconds):
                while not self._engines:
                    if self._ended or not self._owner.coming():
                        raise self._death
                    await self._news.wait()
        except TimeoutError:
            raise WorkerDied(
                f"request {request.id!r} waited {self._endurance.seconds:g} s for an engine: {self._owner.coming()}",
                mend="raise `faults.wait_seconds` when engines take longer to start and load; see their logs",
            ) from self._death
        finally:
            self._waiting -= 1
