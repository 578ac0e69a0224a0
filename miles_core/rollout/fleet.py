"""A fleet: several engines behind one client. A session stays on its engine; a new one goes to the least busy."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Sequence as Several
from typing import Protocol

from miles_core.contracts.engine import GenerateRequest, GenerateResult
from miles_core.errors import RequestError

REMEMBERED_SESSIONS = 100_000


class NamedEngine(Protocol):
    """An engine that can be asked for tokens."""

    @property
    def name(self) -> str: ...
    async def generate(self, request: GenerateRequest) -> GenerateResult: ...


class Fleet:
    """`contracts.engine.EngineClient` over several engines."""

    def __init__(self, engines: Several[NamedEngine]) -> None:
        self._engines = {engine.name: engine for engine in engines}
        self._active: Counter[str] = Counter(dict.fromkeys(self._engines, 0))
        self._home: OrderedDict[str, str] = OrderedDict()

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        name = self._route(request.affinity)
        self._active[name] += 1
        try:
            return await self._engines[name].generate(request)
        finally:
            self._active[name] -= 1

    def _route(self, affinity: str) -> str:
        if not affinity:
            raise RequestError("a request has no affinity key", mend="every GenerateRequest names its session")
        if affinity not in self._home:
            self._home[affinity] = min(self._engines, key=lambda name: self._active[name])
            while len(self._home) > REMEMBERED_SESSIONS:
                self._home.popitem(last=False)
        self._home.move_to_end(affinity)
        return self._home[affinity]
