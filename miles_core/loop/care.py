"""What the keeper of a fleet's engines knows of each, how it is told to care for them, and where their weights are."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import Protocol

from miles_core.contracts.transport import UpdateManifest
from miles_core.errors import MilesError, WorkerDied
from miles_core.runtime.bounded import BoundedHandle
from miles_core.runtime.clients import RemoteEngine
from miles_core.runtime.life import Life, State


@dataclass(frozen=True, slots=True)
class Care:
    """How an engine is cared for: docs/faults.md says what each bounds. Seconds."""

    restarts: int = 3
    restart_delay: float = 1.0
    health_seconds: float = 60.0
    wait_seconds: float = 600.0
    request_deaths: int = 3


class Weights(Protocol):
    """Where the engines of a fleet get their weights."""

    @property
    def lost(self) -> WorkerDied | None:
        """Why there are none any more: their process died."""
        ...

    async def manifest(self, version: int) -> UpdateManifest: ...
    async def transfer(self, version: int, engines: tuple[RemoteEngine, ...]) -> None: ...


@dataclass(slots=True, eq=False)
class Member:
    """One engine through all its lives. `engine` is its living process; None between two lives."""

    name: str
    life: Life = field(default_factory=Life)
    engine: RemoteEngine | None = None
    task: asyncio.Task[None] | None = None
    checking: asyncio.Task[None] | None = None
    serving_since: float = 0.0
    checked: float = 0.0
    given_up: bool = False

    @property
    def rising(self) -> bool:
        """Whether it is being started again."""
        return running(self.task)

    @property
    def coming(self) -> bool:
        """Whether it serves, or may yet."""
        return not self.given_up and (self.rising or self.engine is not None)

    @property
    def doing(self) -> str:
        """In words, of one that is coming."""
        return "to be started again" if self.life.state in (State.DRAINING, State.DEAD) else str(self.life)


def running(task: asyncio.Task[None] | None) -> bool:
    """Whether it began and has not ended."""
    return task is not None and not task.done()


async def death_of(engine: RemoteEngine) -> WorkerDied:
    """How the process of an engine that does not live ended."""
    try:
        await engine.version()
    except WorkerDied as error:
        return error
    except MilesError as error:
        return WorkerDied(str(error))
    return WorkerDied(f"engine {engine.name!r} is gone")


async def end(engine: RemoteEngine, why: str) -> None:
    """Kill its process, whatever it does, and return when it is gone."""
    handle = engine.handle
    if isinstance(handle, BoundedHandle):
        await handle.end(why)
    else:
        await handle.close()
