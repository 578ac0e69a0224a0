"""The sessions of a run: keys, limits, expiry. Keys are kept as digests and stand in no log and no error."""

from __future__ import annotations

import hashlib
import itertools
import secrets
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from miles_core.contracts.engine import EngineClient
from miles_core.contracts.lifecycle import Clock
from miles_core.contracts.model import Renderer
from miles_core.contracts.rollout import Attempt
from miles_core.contracts.sessions import SessionRules
from miles_core.errors import Problem, RequestError
from miles_core.session.attach import POLICIES
from miles_core.session.conversation import Conversation
from miles_core.session.counts import CLOSED, EXPIRED, Counts
from miles_core.session.faults import SessionFault
from miles_core.session.images import ImageRules
from miles_core.session.matching import StrictMatcher
from miles_core.session.session import Session, gone

REMEMBERED = 10_000
"""How many ended sessions are told apart from keys that never were."""

MOST_SECONDS = 366 * 86400.0
"""Above all waiting that anybody means."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What keeps a session service bounded. Raises RequestError that names every limit that is none.

    sessions      alive at once
    nodes         turns in one session, those asked again included
    body_bytes    one request's body
    idle_seconds  after which a session that nobody calls ends
    call_seconds  that sampling one turn may take
    beat_seconds  between signs of life in a stream whose turn is not sampled yet
    images        which images a conversation may have
    """

    sessions: int = 10_000
    nodes: int = 1024
    body_bytes: int = 32 * 2**20
    idle_seconds: float = 4 * 3600.0
    call_seconds: float = 3600.0
    beat_seconds: float = 10.0
    images: ImageRules = field(default_factory=ImageRules)

    def __post_init__(self) -> None:
        counts = [name for name in ("sessions", "nodes", "body_bytes") if getattr(self, name) < 1]
        seconds = ("idle_seconds", "call_seconds", "beat_seconds")
        times = [name for name in seconds if not 0 < getattr(self, name) <= MOST_SECONDS]
        problems = [Problem(f"{name} is {getattr(self, name)}, expected 1 or more") for name in counts]
        problems += [
            Problem(f"{name} is {getattr(self, name)}, expected more than 0 and at most {MOST_SECONDS:g}")
            for name in times
        ]
        if problems:
            raise RequestError(problems)


Ended = Callable[[Session, str], None]
"""Told of each session that ended, and why."""


class SessionStore:
    """Opens, finds and ends sessions. `faults` counts what clients were told, by code; `counts` what became of sessions
    and turns; `ended` is told of each session that ended, before anything else can happen."""

    ended: Ended | None = None

    def __init__(
        self, engines: EngineClient, renderer: Renderer, clock: Clock, context: int, limits: Limits | None = None
    ) -> None:
        self.limits = limits or Limits()
        self.faults: Counter[str] = Counter()
        self.counts = Counts(self.faults)
        self._engines = engines
        self._renderer = renderer
        self._clock = clock
        self._context = context
        self._alive: OrderedDict[bytes, Session] = OrderedDict()  # the longest idle first
        self._ended: OrderedDict[bytes, str] = OrderedDict()
        self._named: dict[str, bytes] = {}
        self._names: dict[bytes, str] = {}
        self._numbers = itertools.count()

    def __len__(self) -> int:
        return len(self._alive)

    def __iter__(self) -> Iterator[Session]:
        return iter(tuple(self._alive.values()))

    def open(self, attempt: Attempt, rules: SessionRules = SessionRules(), name: str = "") -> str:
        """A new session's key. Raises SessionFault: 429 when there are too many, 409 when one of this name is open;
        RequestError for another policy."""
        if rules.policy not in POLICIES:
            raise RequestError(f"there is no session policy {rules.policy!r}", mend=f"one of {', '.join(POLICIES)}")
        self.expire()
        if name and self._named.get(name) in self._alive:
            raise SessionFault(409, "session_exists", f"a session named {name!r} is open")
        if len(self._alive) >= self.limits.sessions:
            raise SessionFault(
                429, "too_many_sessions", f"{len(self._alive)} sessions are open, which is the limit", retry=True
            )
        key = secrets.token_urlsafe(24)
        policy, matcher = POLICIES[rules.policy](), rules.matcher or StrictMatcher()
        conversation = Conversation(self._renderer, policy, matcher, self.limits.nodes, self.limits.images)
        id = name or f"s{next(self._numbers)}"
        session = Session(id, attempt, conversation, self._engines, self._context, self.counts)
        session.last_used = self._clock.now()
        digest = _digest(key)
        self._alive[digest] = session
        self._named[session.id] = digest
        self._names[digest] = session.id
        self.counts.add("opened")
        return key

    def find(self, key: str) -> Session:
        """The session that a key opens, marked as used. Raises SessionFault: 401 for a key that never was, 410 for one
        whose session has ended."""
        session = self._used(_digest(key))
        if session is None:
            raise SessionFault(
                401,
                "invalid_api_key",
                "the key opens no session" if key else "the request has no key",
                mend="send the session's key as `Authorization: Bearer KEY` or `x-api-key: KEY`",
            )
        return session

    def named(self, name: str) -> Session | None:
        """The session of that name, marked as used; None when there never was one. Raises SessionFault (410) when it
        has ended. For whoever may open any session: a client has its key."""
        digest = self._named.get(name)
        return None if digest is None else self._used(digest)

    def close_named(self, name: str) -> None:
        if name in self._named:
            self._end(self._named[name], CLOSED)

    def free(self, name: str) -> bool:
        """Whether no session has, or is remembered to have had, the name."""
        return name not in self._named

    def idle(self, session: Session) -> float:
        """Seconds since it was used."""
        return self._clock.now() - session.last_used

    def _used(self, digest: bytes) -> Session | None:
        self.expire()
        session = self._alive.get(digest)
        if session is not None:
            session.last_used = self._clock.now()
            self._alive.move_to_end(digest)
        elif digest in self._ended:
            raise gone(self._ended[digest])
        return session

    def metrics(self) -> dict[str, float]:
        """What became of sessions and calls since the last call, and how many are alive."""
        return {"session/alive": float(len(self)), **self.counts.metrics()}

    def close(self, key: str, why: str = CLOSED) -> None:
        """End a session. Does nothing when there is none."""
        self._end(_digest(key), why)

    def close_all(self) -> None:
        for digest in list(self._alive):
            self._end(digest, CLOSED)

    def expire(self) -> None:
        """End what has been idle too long. A session whose call is in flight is not idle."""
        oldest = self._clock.now() - self.limits.idle_seconds
        for digest, session in list(itertools.takewhile(lambda item: item[1].last_used < oldest, self._alive.items())):
            if session.busy:
                session.last_used = self._clock.now()
                self._alive.move_to_end(digest)
            else:
                self._end(digest, f"{EXPIRED}: nobody called for {self.limits.idle_seconds:g} seconds")

    def _end(self, digest: bytes, why: str) -> None:
        session = self._alive.pop(digest, None)
        if session is None:
            return
        session.close(why)
        self.counts.add(EXPIRED if why.startswith(EXPIRED) else CLOSED)
        self._ended[digest] = why
        while len(self._ended) > REMEMBERED:
            forgotten, _ = self._ended.popitem(last=False)
            if self._named.get(name := self._names.pop(forgotten)) == forgotten:
                del self._named[name]
        if self.ended is not None:
            self.ended(session, why)


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode(errors="surrogateescape")).digest()
