"""A rollout that refills at once."""

import asyncio
from collections.abc import Mapping
from typing import Any

from miles_core import Attempt, BuildContext, Group, RolloutContext, RunError, Ticket, Tickets, Verdict

from miles_plugin_xyz.options import XyzOptions


class XyzRollout:
    """One task of the event loop starts groups, each group is a task of its own. See `miles_core.Rollout`.

    `Tickets` numbers the draws, and remembers those in flight, so that a resumed run makes them again.
    """

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        self._options = options
        self._tickets = Tickets()
        self._wanted = 0  # granted, not yet kept
        self._dropped_in_a_row = 0
        self._exhausted = False
        self._running: set[asyncio.Task[None]] = set()
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._filling: asyncio.Task[None] | None = None

    async def start(self, context: RolloutContext) -> None:
        self._context = context
        self._slots = self._options.in_flight
        if context.pace.in_flight is not None:  # the schedule's limit, in trajectories
            self._slots = min(self._slots, max(1, context.pace.in_flight // context.group_size))
        self._filling = asyncio.create_task(self._fill_slots(), name="rollout xyz")

    def grant(self, groups: int) -> None:
        self._wanted += groups
        self._exhausted = False
        self._idle.clear()
        self._wake.set()

    async def drain(self) -> None:
        await self._idle.wait()

    def state(self) -> Mapping[str, Any]:
        return {**self._tickets.state(), "wanted": self._wanted}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._tickets.restore(state)
        self.grant(state["wanted"])

    async def close(self) -> None:
        tasks = [*self._running, *([self._filling] if self._filling else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _fill_slots(self) -> None:
        try:
            while True:
                self._start_groups()
                if not self._running and (not self._wanted or self._exhausted):
                    if self._wanted:
                        self._context.buffer.end()  # the data ended before the grant was used up
                    self._idle.set()
                await self._wake.wait()
                self._wake.clear()
        except Exception as error:
            self._fail(error)

    def _start_groups(self) -> None:
        while len(self._running) < min(self._slots, self._wanted):
            ticket = self._tickets.start(self._context.data)
            if ticket is None:
                self._exhausted = True
                return
            task = asyncio.create_task(self._make(ticket))
            self._running.add(task)
            task.add_done_callback(self._finished)

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        self._wake.set()
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)

    def _fail(self, error: BaseException) -> None:
        """Stop all work. The driver gets the error from the buffer, where it waits."""
        for task in self._running:
            task.cancel()
        if self._filling is not None:
            self._filling.cancel()
        self._idle.set()
        self._context.buffer.end(error)

    async def _make(self, ticket: Ticket) -> None:
        """Attempts, score, buffer. A group that the buffer drops is replaced by another."""
        context, number, draw = self._context, ticket.number, ticket.draw
        attempts = [
            Attempt(
                f"g{number}.{index}", draw.task, number, draw.draw, index, "rollout", context.sampling, context.seed
            )
            for index in range(context.group_size)
        ]
        trajectories = await asyncio.gather(*(context.generate(attempt) for attempt in attempts))
        group = await context.score(Group(draw.task, number, draw.draw, tuple(trajectories)))
        verdict = await context.buffer.put(group)
        self._tickets.done(ticket)
        self._wanted -= verdict.keep
        self._tell(group, verdict)
        self._lose_patience(verdict)

    def _tell(self, group: Group, verdict: Verdict) -> None:
        rewards = [trajectory.reward for trajectory in group.trajectories if trajectory.reward is not None]
        self._context.events.emit(
            "group_finished",
            group=group.id,
            task=group.task.id,
            disposition="buffered" if verdict.keep else verdict.reason,
            reward=sum(rewards) / len(rewards) if rewards else None,
        )

    def _lose_patience(self, verdict: Verdict) -> None:
        self._dropped_in_a_row = 0 if verdict.keep else self._dropped_in_a_row + 1
        if self._dropped_in_a_row >= self._options.patience:
            raise RunError(
                f"{self._dropped_in_a_row} groups in a row were dropped, the last one as: {verdict.reason}",
                mend="choose tasks that the model sometimes solves, a graded reward, or another filter",
            )
