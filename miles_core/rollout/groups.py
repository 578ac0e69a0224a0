"""The `groups` rollout: makes whole groups, as many as it was granted, and fills its slots at the schedule's pace.

In rounds, all granted groups start at once, and those that the buffer rejects are replaced when the round has ended:
what an engine computes together then depends on the tasks alone and not on timing, so a synchronous run is reproducible
to the last bit. By group or by sample, a slot is filled as soon as it is free, so that engines never wait for
stragglers; a full buffer keeps new groups from starting while those in flight go on. Attempts whose group would be too
old anyway are cancelled (`making`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pydantic import Field

from miles_core.contracts.component import BuildContext
from miles_core.contracts.options import Options
from miles_core.contracts.pace import Pace, Refill
from miles_core.contracts.rollout import RolloutContext, Verdict
from miles_core.errors import PluginError
from miles_core.rollout.making import Making
from miles_core.rollout.patience import Patience
from miles_core.rollout.tickets import Ticket, Tickets
from miles_core.rollout.together import is_our_end
from miles_core.types.trajectory import Group


class GroupsOptions(Options):
    """When to give up."""

    fruitless_rounds: int = Field(
        default=50, gt=0, description="rounds in a row without one kept group after which the run stops"
    )


class GroupsRollout:
    """See `contracts.rollout.Rollout`."""

    def __init__(self, options: GroupsOptions, context: BuildContext) -> None:
        self._tickets = Tickets()
        self._patience = Patience(options.fruitless_rounds)
        self._wanted = 0  # granted, not yet kept
        self._samples = 0  # attempts in flight
        self._scoring = 0  # groups whose attempts have ended and that are being scored
        self._entering = 0  # groups that wait for room in the buffer
        self._making: set[Making] = set()
        self._earliest: int | None = None  # version of the next batch, as far as it is foreseen
        self._held: bool | None = None
        self._exhausted = False
        self._wake = asyncio.Event()
        self._idle = asyncio.Event()
        self._idle.set()
        self._task: asyncio.Task[None] | None = None

    async def start(self, context: RolloutContext) -> None:
        self._context, self._pace = context, context.pace
        self._task = asyncio.create_task(self._run(), name="rollout")

    def grant(self, groups: int) -> None:
        self._wanted += groups
        self._exhausted = False
        self._idle.clear()
        self._wake.set()

    def remake(self, kept: Group) -> None:
        """See `contracts.beside.Remakes`."""
        self._tickets.complete(kept)
        self.grant(1)

    def foresee(self, version: int) -> None:
        """See `contracts.beside.GivesUp`."""
        self._earliest = version
        for making in tuple(self._making):
            making.foresee(version)

    def repace(self, pace: Pace) -> None:
        """See `contracts.beside.Repaces`."""
        self._pace = pace
        self._wake.set()

    async def drain(self) -> None:
        await self._idle.wait()

    def state(self) -> Mapping[str, Any]:
        state = self._tickets.state()
        return {**state, "wanted": self._wanted} if self._wanted else state

    def restore(self, state: Mapping[str, Any]) -> None:
        self._tickets.restore(state)
        self._patience.something_succeeded = self._tickets.next_number > 0
        self.grant(state.get("wanted", 0))

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            await self._fill_slots()
        except BaseException as error:  # the driver gets it from the buffer, where it waits
            if is_our_end(error):
                raise
            self._context.buffer.end(error if isinstance(error, Exception) else _unusual(error))
        finally:
            self._idle.set()

    async def _fill_slots(self) -> None:
        try:
            async with asyncio.TaskGroup() as groups:
                while True:
                    for ticket in self._start():
                        groups.create_task(self._make(ticket))
                    self._rest()
                    await self._wake.wait()
                    self._wake.clear()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from failures.exceptions[0].__cause__

    def _start(self) -> list[Ticket]:
        """Tickets for the groups that may be started now."""
        pace, round_goes_on = self._pace, self._pace.refill is Refill.ROUND and bool(self._tickets.in_flight)
        tickets: list[Ticket] = []
        while not round_goes_on and self._may_start():
            attempts = self._tickets.attempts_of_next(self._context.group_size)
            ticket = self._tickets.start(self._context.data)
            if ticket is None:
                self._exhausted = True
                break
            tickets.append(ticket)
            self._samples += attempts
        if tickets:
            in_slots = (pace.in_flight or 1) // self._context.group_size
            self._patience.begin_round(len(tickets) if pace.refill is Refill.ROUND else in_slots)
        self._tell_held()
        return tickets

    def _may_start(self) -> bool:
        """Whether a group is wanted and there are slots for it."""
        groups, group_size = len(self._tickets.in_flight), self._context.group_size
        if groups >= self._wanted or self._entering:
            return False
        most = self._pace.in_flight
        if most is None:
            return True
        if self._pace.refill is Refill.SAMPLE:
            # slow rewards hold the rollout up like a full buffer, or finished groups would pile up before them
            free = most - self._samples
            return self._scoring < most // group_size and free >= self._tickets.attempts_of_next(group_size)
        return groups < most // group_size

    def _tell_held(self) -> None:
        nothing_to_start = self._exhausted or self._wanted <= len(self._tickets.in_flight)
        held = nothing_to_start or self._entering > 0
        if held != self._held:
            self._held = held
            self._context.held_back(held)

    def _rest(self) -> None:
        """Say so when nothing is in flight and nothing will be."""
        if self._tickets.in_flight or (self._wanted and not self._exhausted):
            return
        if self._wanted:
            self._context.buffer.end()
        self._idle.set()

    async def _make(self, ticket: Ticket) -> None:
        group = await self._attempt(ticket)
        if not group.cancelled:
            self._scoring += 1
            group = await self._context.score(group)
            self._scoring -= 1
            self._patience.look_at(group)
        self._entering += 1
        self._tell_held()
        verdict = await self._context.buffer.put(group)
        self._entering -= 1
        self._tickets.done(ticket)
        self._wanted -= verdict.keep
        self._wake.set()
        self._tell(group, verdict)
        if not group.cancelled:
            self._patience.note(verdict)

    async def _attempt(self, ticket: Ticket) -> Group:
        making = Making(ticket, self._context, self._attempt_ended)
        self._making.add(making)
        if self._earliest is not None:
            making.foresee(self._earliest)
        try:
            return await making.group()
        finally:
            self._making.remove(making)

    def _attempt_ended(self) -> None:
        self._samples -= 1
        if self._may_start():
            self._wake.set()

    def _tell(self, group: Group, verdict: Verdict) -> None:
        rewards = [t.reward for t in group.trajectories if t.reward is not None]
        self._context.events.emit(
            "group_finished",
            group=group.id,
            task=group.task.id,
            disposition="buffered" if verdict.keep else verdict.reason,
            reward=sum(rewards) / len(rewards) if rewards else None,
        )


def _unusual(error: BaseException) -> PluginError:
    """What data, a filter or a buffer raised although it is no Exception, such as SystemExit."""
    return PluginError(f"a plugin raised {type(error).__name__}: {error}", where="rollout", mend="raise an Exception")
