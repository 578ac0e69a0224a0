"""What a rollout makes next and what it is making: numbered draws, which survive a checkpoint."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from miles_core.contracts.rollout import Data, Draw
from miles_core.rollout.kept import from_data, to_data
from miles_core.types.task import Task
from miles_core.types.trajectory import Group, Trajectory


@dataclass(frozen=True, slots=True)
class Ticket:
    """A group to be made. `number` counts submissions: it is kept when a resumed run makes the group again. `kept` are
    trajectories that it has already, of a group of which others were too old."""

    number: int
    draw: Draw
    kept: tuple[Trajectory, ...] = ()

    def missing(self, group_size: int) -> list[int]:
        """The indices of the attempts that are to be made."""
        kept = {trajectory.index for trajectory in self.kept}
        return [index for index in range(group_size) if index not in kept]


class Tickets:
    """Hands out tickets: first those that were in flight at the checkpoint or are to be completed, then new draws."""

    def __init__(self) -> None:
        self.next_number = 0
        self.in_flight: dict[int, Ticket] = {}
        self._again: deque[Ticket] = deque()

    def start(self, data: Data) -> Ticket | None:
        """The next ticket, now in flight; None when the data ended."""
        if self._again:
            ticket = self._again.popleft()
        else:
            draw = data.draw()
            if draw is None:
                return None
            ticket = self._new(draw)
        self.in_flight[ticket.number] = ticket
        return ticket

    def attempts_of_next(self, group_size: int) -> int:
        """How many attempts the next ticket needs."""
        return len(self._again[0].missing(group_size)) if self._again else group_size

    def complete(self, kept: Group) -> None:
        """A group of the same draw with these trajectories and new ones beside them, before anything else."""
        draw = Draw(kept.task, kept.draw, kept.remade + 1)
        self._again.append(self._new(draw, kept.trajectories))

    def done(self, ticket: Ticket) -> None:
        del self.in_flight[ticket.number]

    def state(self) -> dict[str, Any]:
        """`in_flight` is left out when nothing is."""
        open_tickets = sorted((*self.in_flight.values(), *self._again), key=lambda ticket: ticket.number)
        state: dict[str, Any] = {"next_number": self.next_number}
        if open_tickets:
            state["in_flight"] = [_to_data(ticket) for ticket in open_tickets]
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        self.next_number = state["next_number"]
        self.in_flight = {}
        self._again = deque(_from_data(each) for each in state.get("in_flight", ()))

    def _new(self, draw: Draw, kept: tuple[Trajectory, ...] = ()) -> Ticket:
        self.next_number += 1
        return Ticket(self.next_number - 1, draw, kept)


def _to_data(ticket: Ticket) -> dict[str, Any]:
    """`remade` and `kept` are left out when there is nothing of them."""
    draw = ticket.draw
    data: dict[str, Any] = {"number": ticket.number, "draw": draw.draw, "task": draw.task.to_data()}
    if draw.remade:
        data["remade"] = draw.remade
    if ticket.kept:
        data["kept"] = to_data(Group(draw.task, ticket.number, draw.draw, ticket.kept))
    return data


def _from_data(data: Mapping[str, Any]) -> Ticket:
    task = Task.from_data(data["task"])
    kept = from_data(data["kept"]) if "kept" in data else ()
    return Ticket(data["number"], Draw(task, data["draw"], data.get("remade", 0)), kept)
