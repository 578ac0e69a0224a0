"""The `limit` middleware: so many attempts at once, and so many begun in a second."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from pydantic import Field, PositiveInt

from miles_core.contracts.component import BuildContext
from miles_core.contracts.lifecycle import Clock
from miles_core.contracts.middleware import GeneratorMiddleware
from miles_core.contracts.options import Options
from miles_core.contracts.rollout import Attempt, GenerateContext
from miles_core.types.trajectory import Trajectory


class LimitOptions(Options):
    """How much at once."""

    concurrent: PositiveInt = Field(description="attempts that run at once")
    per_second: float | None = Field(
        default=None, gt=0, allow_inf_nan=False, description="attempts begun in a second; without it, as they come"
    )


class Limit(GeneratorMiddleware):
    """An attempt waits until there is room for it, in the order of asking."""

    def __init__(self, options: LimitOptions, context: BuildContext) -> None:
        self._room = asyncio.Semaphore(options.concurrent)
        self._pace = _Pace(1 / options.per_second) if options.per_second else None

    async def generate(self, attempt: Attempt, context: GenerateContext) -> Trajectory:
        async with self._room:
            if self._pace is not None:
                await self._pace.wait(context.clock)
            return await self.inner.generate(attempt, context)


@dataclass(slots=True)
class _Pace:
    """Turns that are `seconds` apart. What was not used is not saved up."""

    seconds: float
    next_turn: float = float("-inf")

    async def wait(self, clock: Clock) -> None:
        now = clock.now()
        turn = max(now, self.next_turn)
        self.next_turn = turn + self.seconds
        if turn > now:
            await clock.sleep(turn - now)
