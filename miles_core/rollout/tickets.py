"""What a rollout makes next and what it is making: numbered draws, which survive a checkpoint."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from miles_core.contracts.rollout import Data, Draw
from miles_core.types.task import Task


@dataclass(frozen=True, slots=True)
class Ticket:
    """A group to be made. `number` counts submissions: it is kept when a resumed run makes the group again."""

    number: int
    draw: Draw


class Tickets:
    """Hands out tickets: first those that were in flight at the checkpoint, then new draws."""

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
            ticket = Ticket(self.next_number, draw)
            self.next_number += 1
        self.in_flight[ticket.number] = ticket
        return ticket

    def done(self, ticket: Ticket) -> None:
        del self.in_flight[ticket.number]

    def state(self) -> dict[str, Any]:
        """`in_flight` is left out when nothing is."""
        open_tickets = sorted((*self.in_flight.values(), *self._again), key=lambda ticket: ticket.number)
        state: dict[str, Any] = {"next_number": self.next_number}
        if open_tickets:
            state["in_flight"] = [
                {"number": t.number, "draw": t.draw.draw, "task": t.draw.task.to_data()} for t in open_tickets
            ]
        return state

    def restore(self, state: Mapping[str, Any]) -> None:
        self.next_number = state["next_number"]
        self.in_flight = {}
        self._again = deque(
            Ticket(each["number"], Draw(Task.from_data(each["task"]), each["draw"]))
            for each in state.get("in_flight", ())
        )
