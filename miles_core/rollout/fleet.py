"""A fleet: several engines behind one client. A session stays on its engine; a new one goes to the least busy.

An engine that dies loses its sessions to the others: what it was asked is asked again elsewhere, which changes no token
(noise is a function of the request), and what it had cached is computed anew. Both are told and counted.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence as Several
from dataclasses import dataclass
from typing import Protocol

from miles_core.contracts.engine import GenerateRequest, GenerateResult
from miles_core.contracts.lifecycle import EventSink, NoEvents
from miles_core.errors import RequestError, WorkerDied

REMEMBERED_SESSIONS = 100_000


class NamedEngine(Protocol):
    """An engine that can be asked for tokens."""

    @property
    def name(self) -> str: ...
    async def generate(self, request: GenerateRequest) -> GenerateResult: ...


@dataclass(slots=True)
class _Home:
    """Where a session lives, and how many tokens of it that engine has seen."""

    engine: str
    tokens: int = 0


class Fleet:
    """`contracts.engine.EngineClient` over several engines. `events` is told `engine_lost` (engine, why, left) and
    `session_moved` (session, engine, to, lost_tokens)."""

    def __init__(self, engines: Several[NamedEngine], events: EventSink | None = None) -> None:
        self._engines = {engine.name: engine for engine in engines}
        self._events = events or NoEvents()
        self._lost: dict[str, WorkerDied] = {}
        self._active: Counter[str] = Counter(dict.fromkeys(self._engines, 0))
        self._given: Counter[str] = Counter()
        self._home: OrderedDict[str, _Home] = OrderedDict()
        self._counted: Counter[str] = Counter()

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """Raises WorkerDied when no engine is left."""
        while True:
            home = self._route(request)
            name = home.engine
            self._active[name] += 1
            try:
                result = await self._engines[name].generate(request)
            except WorkerDied as error:
                self._lose(name, error)
                continue
            finally:
                self._active[name] -= 1
            home.tokens = len(request.tokens) + len(result.tokens)
            return result

    def metrics(self) -> dict[str, float]:
        """What was lost since the last call; nothing when nothing was."""
        counted, self._counted = self._counted, Counter()
        return {f"engine/{name}": float(count) for name, count in counted.items()}

    def _route(self, request: GenerateRequest) -> _Home:
        affinity = request.affinity
        if not affinity:
            raise RequestError("a request has no affinity key", mend="every GenerateRequest names its session")
        home = self._home.get(affinity)
        if home is None:
            home = self._home[affinity] = _Home(self._least_busy())
            while len(self._home) > REMEMBERED_SESSIONS:
                self._home.popitem(last=False)
        elif home.engine in self._lost:
            self._move(affinity, home, len(request.tokens))
        self._home.move_to_end(affinity)
        return home

    def _least_busy(self) -> str:
        """Fewest active requests; of equals, that which was given the fewest sessions. Raises the last death when no
        engine is left."""
        living = [name for name in self._engines if name not in self._lost]
        if not living:
            raise list(self._lost.values())[-1]
        name = min(living, key=lambda each: (self._active[each], self._given[each]))
        self._given[name] += 1
        return name

    def _move(self, affinity: str, home: _Home, prompt: int) -> None:
        to, before, lost = self._least_busy(), home.engine, min(home.tokens, prompt)
        home.engine, home.tokens = to, 0
        self._counted["moved_sessions"] += 1
        self._counted["lost_prefix_tokens"] += lost
        self._events.emit("session_moved", session=affinity, engine=before, to=to, lost_tokens=lost)

    def _lose(self, name: str, error: WorkerDied) -> None:
        """The engine is not asked again. Raises its death when it was the last one."""
        left = len(self._engines) - len({*self._lost, name})
        if name not in self._lost:
            self._lost[name] = error
            self._counted["lost"] += 1
            self._events.emit("engine_lost", engine=name, why=str(error), left=left)
        if not left:
            raise error
