"""A group in the making: its attempts beside each other, and giving them up when the group would be too old anyway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from miles_core.contracts.rollout import Attempt, RolloutContext
from miles_core.rollout.tickets import Ticket
from miles_core.rollout.together import together
from miles_core.types.trajectory import CANCELLED, REMADE, Group, Status, Trajectory

PURPOSE = "rollout"
"""Separates the randomness of training from that of evaluations."""


class Making:
    """The attempts of one ticket. `ended` is called with the end of each."""

    def __init__(self, ticket: Ticket, context: RolloutContext, ended: Callable[[], None]) -> None:
        self._ticket, self._context, self._ended = ticket, context, ended
        self._finished = list(ticket.kept)
        self._open: set[asyncio.Task[Any]] = set()
        self._earliest: int | None = None
        self.why = ""  # it was given up

    async def group(self) -> Group:
        """Whole: what is kept and what was made, by index. Attempts that were given up have no sequence."""
        made = await together(self._attempt(attempt) for attempt in self._attempts())
        return self._of(*sorted((*self._ticket.kept, *made), key=lambda trajectory: trajectory.index))

    def foresee(self, version: int) -> None:
        """See `contracts.beside.GivesUp`."""
        self._earliest = version
        self._look(*self._finished)

    def _attempts(self) -> list[Attempt]:
        number, draw, context = self._ticket.number, self._ticket.draw, self._context
        return [
            Attempt(
                f"g{number}.{index}",
                draw.task,
                number,
                draw.draw,
                index,
                PURPOSE,
                context.sampling,
                context.seed,
                draw.remade,
            )
            for index in self._ticket.missing(context.group_size)
        ]

    async def _attempt(self, attempt: Attempt) -> Trajectory:
        task = asyncio.current_task()
        assert task is not None
        self._open.add(task)
        try:
            made = await self._context.generate(attempt) if not self.why else self._given_up(attempt)
        except asyncio.CancelledError:
            if not self.why:
                raise
            task.uncancel()
            made = self._given_up(attempt)
        finally:
            self._open.discard(task)
            self._ended()
        if attempt.remade:
            made = replace(made, metadata={**made.metadata, REMADE: attempt.remade})
        self._finished.append(made)
        self._look(made)
        return made

    def _look(self, *finished: Trajectory) -> None:
        """Give up what is open when these alone make the group too old."""
        hopeless = self._context.hopeless
        if hopeless is None or self._earliest is None or not self._open or self.why or not finished:
            return
        self.why = hopeless(self._of(*finished), self._earliest)
        if self.why:
            for task in self._open:
                task.cancel()

    def _given_up(self, attempt: Attempt) -> Trajectory:
        return Trajectory(
            attempt.id, attempt.task.id, attempt.index, (), Status.ABORTED, metadata={CANCELLED: self.why}
        )

    def _of(self, *trajectories: Trajectory) -> Group:
        draw = self._ticket.draw
        return Group(draw.task, self._ticket.number, draw.draw, trajectories)
