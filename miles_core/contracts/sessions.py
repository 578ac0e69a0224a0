"""What a generator may do with sessions: open one for an attempt, take what was sampled in it, close it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from miles_core.types.sequence import Sequence

if TYPE_CHECKING:
    from miles_core.contracts.rollout import Attempt, Matcher


@dataclass(frozen=True, slots=True)
class SessionRules:
    """What a harness may do with its history.

    policy   `linear`: only the tail grows, the last turn may be asked again; `branching`: forks, retries, compaction
             and sub-agents become branches
    matcher  whether a replayed message is the stored one; None: equal in every field that a renderer reads
    """

    policy: str = "linear"
    matcher: Matcher | None = None


@dataclass(frozen=True, slots=True)
class SessionAddress:
    """Where an agent reaches its session: the base URL of the chat routes, and the key that names this session and
    opens no other. The key is a secret: it is neither printed nor logged."""

    base_url: str
    api_key: str = field(repr=False)


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """What was sampled in a session so far.

    sequences   one for a linear session, one for each kept leaf of a branching one; empty when nothing was sampled
    text        the content of the last assistant message
    truncated   whether the last turn was cut by its token limit
    turns       model calls whose tokens are in the sequences
    facts       JSON data for the trajectory's metadata: what was retried, what was asked for and not honoured
    """

    sequences: tuple[Sequence, ...]
    text: str
    truncated: bool
    turns: int
    facts: Mapping[str, Any] = field(default_factory=dict)


class Sessions(Protocol):
    """The session service, as the generator of an agent sees it. A key that names no living session raises the
    MilesError that a client with that key is told."""

    async def open(self, attempt: Attempt, rules: SessionRules = SessionRules()) -> SessionAddress:
        """A new session, which samples as the attempt says. Raises MilesError when there are too many."""
        ...

    async def watch(self, api_key: str) -> NoReturn:
        """Wait until something breaks that is not the client's fault (an engine died, a plugin is broken), and raise
        it. Cancel it when the session is no longer needed."""
        ...

    async def collect(self, api_key: str) -> Collected:
        """What the finished calls sampled, token for token. Changes nothing."""
        ...

    async def close(self, api_key: str) -> None:
        """End the session: its calls in flight are cancelled, and its key opens nothing any more. Idempotent."""
        ...
