"""Engines that only evaluate: they hold one weight version at a time, and prove it before and after."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from miles_core.contracts.capabilities import OWN_ENGINES
from miles_core.contracts.component import ComponentRef
from miles_core.contracts.model import Renderer
from miles_core.contracts.transport import Form
from miles_core.errors import RunError
from miles_core.loop.keeper import LOOK_SECONDS, Keeper, Weights
from miles_core.loop.sessions import serve_sessions
from miles_core.recipe.resolved import Plan
from miles_core.runtime.clients import RemoteEngine

if TYPE_CHECKING:
    from miles_core.session.server import SessionServer

Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class EvaluationFleet:
    """The engines of one evaluation. `keeper` owns their lives: one that died is started again, and takes part from the
    next evaluation on. `sessions` is where an agent's chat is answered by them, in a run with agents."""

    name: str
    keeper: Keeper
    sessions: SessionServer | None = None

    @property
    def serving(self) -> tuple[RemoteEngine, ...]:
        names = self.keeper.fleet.serving
        return tuple(engine for engine in self.keeper.engines if engine.name in names)

    async def reads_disk(self) -> bool:
        able = await asyncio.gather(*(engine.capabilities() for engine in self.serving))
        return all(Form.DISK in each.forms for each in able)

    async def take(self, version: int, weights: Weights) -> None:
        """Have the engines that live hold `version`. Raises RunError when none is left, or one reports another."""
        await self.keeper.publish(weights, version)
        await self.keeper.weights_move()  # the trainer goes on: one that comes up later waits for the next evaluation
        if not self.serving:
            raise RunError(f"no engine of its own is up: {self.keeper.coming()}")
        await self.prove(version)

    async def prove(self, version: int) -> None:
        """Raises RunError unless every engine that answers reports `version`."""
        reported = await asyncio.gather(*(engine.version() for engine in self.serving))
        if not reported:
            raise RunError(f"no engine of its own is up: {self.keeper.coming()}")
        if wrong := sorted({str(found) for found in reported if found != version}):
            raise RunError(f"its engines report version {', '.join(wrong)}, not {version}")

    async def unless_lost(self, work: Coroutine[Any, Any, Result]) -> Result:
        """What `work` returns. Raises RunError, and `work` is cancelled, when its last engine died: no other one gets
        the weights that are measured."""
        asked, lost = asyncio.ensure_future(work), asyncio.ensure_future(self.keeper.starved())
        try:
            await asyncio.wait({asked, lost}, return_when=asyncio.FIRST_COMPLETED)
            if not asked.done():
                raise RunError("its engines died while it was under way")
            return asked.result()
        finally:
            for task in (asked, lost):
                task.cancel()
            await asyncio.gather(asked, lost, return_exceptions=True)

    async def is_up(self) -> None:
        """Wait until an engine is there to take weights, while one may still come."""
        while not self.keeper.engines and self.keeper.coming():
            await asyncio.sleep(LOOK_SECONDS)

    async def close(self) -> None:
        if self.sessions is not None:
            await self.sessions.stop()
        await self.keeper.close()


def evaluation_keepers(plan: Plan, make: Callable[[str, int], Keeper | None]) -> dict[str, Keeper]:
    """By evaluation, the owner of its own engines. Phases whose evaluations have the same name share them."""
    wanted: dict[str, int] = {}
    for ref in (ref for phase in plan.phases for ref in phase.evaluators if OWN_ENGINES in ref.capabilities):
        name, replicas = evaluation_name(ref), int(ref.options.get("replicas", 1))
        wanted[name] = max(replicas, wanted.get(name, 1))
    made = {name: make(f"evaluation-{name}", replicas) for name, replicas in wanted.items()}
    return {name: keeper for name, keeper in made.items() if keeper is not None}


async def evaluation_fleets(
    plan: Plan, keepers: Mapping[str, Keeper], renderer: Renderer | None
) -> dict[str, EvaluationFleet]:
    """The engines, which have been started, with sessions of their own where the run has agents."""
    fleets: dict[str, EvaluationFleet] = {}
    try:
        for name, keeper in keepers.items():
            sessions = await serve_sessions(plan, keeper.fleet, renderer, keeper.engines)
            fleets[name] = EvaluationFleet(name, keeper, sessions)
    except BaseException:
        for fleet in fleets.values():
            await fleet.close()
        raise
    return fleets


def evaluation_name(ref: ComponentRef) -> str:
    """What the recipe calls an evaluation: its option `name`, or that of its component."""
    return str(ref.options.get("name") or ref.name)
