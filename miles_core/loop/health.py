"""Looking after engines that serve: whether their processes live, and whether they say that they are well in time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from collections.abc import Sequence as Several
from dataclasses import dataclass
from typing import Any

from miles_core.contracts.lifecycle import Clock
from miles_core.errors import WorkerDied
from miles_core.loop.care import Member, death_of, running
from miles_core.runtime.clients import RemoteEngine
from miles_core.runtime.life import State

LOOK_SECONDS = 0.25
"""How often it is looked whether the engines' processes are alive."""

STEADY_SECONDS = 600.0
"""After so long of serving, an engine's earlier deaths no longer count."""

CHECKS = 4
"""Health checks that begin within the time in which one must be answered."""


@dataclass(frozen=True, slots=True)
class Watch:
    """`died` and `unwell` are told what is seen; `begin` makes a task of a check. An engine that is started or loaded
    is looked after by whoever does that."""

    members: Several[Member]
    clock: Clock
    seconds: float
    died: Callable[[Member, WorkerDied], None]
    unwell: Callable[[Member, RemoteEngine, str], None]
    begin: Callable[[Coroutine[Any, Any, None], str], asyncio.Task[None]]

    async def run(self) -> None:
        """Until it is cancelled."""
        while True:
            await self.clock.sleep(LOOK_SECONDS)
            for member in self.members:
                if member.engine is not None and member.life.state is State.SERVING:
                    await self._look(member, member.engine)

    async def _look(self, member: Member, engine: RemoteEngine) -> None:
        now = self.clock.now()
        if not engine.handle.alive:
            death = await death_of(engine)
            if member.engine is engine:
                self.died(member, death)
            return
        if member.life.restarts and now - member.serving_since > STEADY_SECONDS:
            member.life = member.life.steady()
        if now - member.checked > self.seconds / CHECKS and not running(member.checking):
            member.checked = now
            member.checking = self.begin(self._check(member, engine), f"health of {member.name}")

    async def _check(self, member: Member, engine: RemoteEngine) -> None:
        try:
            async with asyncio.timeout(self.seconds):
                health = await engine.health()
            why = "" if health.ok else f"it says: {health.detail}"
        except TimeoutError:
            why = f"it did not answer `health` for {self.seconds:g} s"
        except Exception as error:  # dead, which the next look sees, or broken
            why = f"`health` failed: {error}"
        if why and member.engine is engine and engine.handle.alive and member.life.state is State.SERVING:
            self.unwell(member, engine, why)
