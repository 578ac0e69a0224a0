"""What a dialect is: how one kind of client asks, is answered, and is told what went wrong. Dialects are pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from miles_core.session.call import ChatReply, ChatRequest, TokenRequest
from miles_core.session.faults import SessionFault
from miles_core.types.task import Message

Forms = Callable[[Message], tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Served:
    """What a dialect may know beside a body.

    model       the served model's name
    token_text  the text of one token id
    recognise   given the forms in which this dialect's clients see a reply: finds the reply that they sent back
    earlier     the conversation up to and with the turn of a request's id; None: the session has no such turn
    """

    model: str
    token_text: Callable[[int], str]
    recognise: Callable[[Forms], Callable[[Sequence[Mapping[str, Any]], str], Message | None]]
    earlier: Callable[[str], tuple[Message, ...] | None]


@dataclass(frozen=True, slots=True)
class Call:
    """A body that was read: what it asks of the session, and how the answer is written: whole, or as server-sent events
    (a turn is complete before the first of them)."""

    request: ChatRequest | TokenRequest
    stream: bool
    whole: Callable[[ChatReply], dict[str, Any]]
    events: Callable[[ChatReply], Iterator[str]]


class Dialect(Protocol):
    """One kind of client."""

    def read(self, body: Mapping[str, Any], served: Served) -> Call:
        """Raises SessionFault (400) that names the key."""
        ...

    def status(self, fault: SessionFault) -> int:
        """The HTTP status of a fault, where this dialect has another one for it."""
        ...

    def error(self, fault: SessionFault) -> dict[str, Any]:
        """The body that tells of a fault."""
        ...

    def error_event(self, fault: SessionFault) -> str:
        """The same inside a stream that had begun."""
        ...
