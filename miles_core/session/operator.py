"""Whoever serves sessions to others opens, looks at, collects and ends them by one key, over HTTP."""

from __future__ import annotations

import hmac
import itertools
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from miles_core.contracts.rollout import Attempt
from miles_core.contracts.sessions import Collected, SessionRules
from miles_core.session.attach import POLICIES
from miles_core.session.faults import SessionFault, bad_request
from miles_core.session.fields import integer, temperature
from miles_core.session.matching import MATCHERS
from miles_core.session.session import Session
from miles_core.session.store import SessionStore
from miles_core.types.sampling import Sampling
from miles_core.types.sequence import Sequence
from miles_core.types.task import Task

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,127}")
ROUTES = ("messages", "responses", "models", "health", "sessions")
"""Words that paths end with, so that no session can be called by them."""

WISHES = ("name", "history", "matcher", "temperature", "max_new_tokens", "seed", "metadata")


class Operator:
    """See the module's text. `sampling` and `rules` are those of sessions that ask for nothing else; `key` is made
    when none is given. `urls` gives the base URLs of a session by its name."""

    def __init__(
        self,
        store: SessionStore,
        urls: Callable[[str], Mapping[str, str]],
        *,
        sampling: Sampling,
        rules: SessionRules = SessionRules(),
        seed: int = 0,
        key: str = "",
    ) -> None:
        self.key = key or secrets.token_urlsafe(32)
        self._store = store
        self._urls = urls
        self._sampling = sampling
        self._rules = rules
        self._seed = seed
        self._numbers = itertools.count()

    def owns(self, key: str) -> bool:
        return hmac.compare_digest(key.encode(errors="surrogateescape"), self.key.encode())

    def open(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """A new session: its name, its base URLs and its key. Raises SessionFault: 400 that names the key of the body,
        409 for a name that is taken, 429."""
        if unknown := [key for key in body if key not in WISHES]:
            raise bad_request(f"`{unknown[0]}` is not known here", mend=f"one of {', '.join(WISHES)}")
        name = self._name(body.get("name"))
        key = self._store.open(self._attempt(name, body), self._rules_of(body), name)
        return {"id": name, **self._urls(name), "api_key": key}

    def named(self, name: Any) -> Session:
        """The session that a client without a key of its own names beside the operator's; opened by its first call."""
        name = self._name(name)
        found = self._store.named(name)
        if found is None:
            self.open({"name": name})
            found = self._store.named(name)
        assert found is not None
        return found

    def listing(self) -> dict[str, Any]:
        """Every session that is open, and what clients were told so far."""
        self._store.expire()
        sessions = [
            {"id": s.id, "turns": len(s.conversation.tree), "busy": s.busy, "idle_seconds": self._store.idle(s)}
            for s in self._store
        ]
        return {"sessions": sessions, "faults": dict(self._store.faults)}

    def _name(self, given: Any) -> str:
        if given is None:
            return next(name for n in self._numbers if (name := f"s{n}") and self._store.free(name))
        if not isinstance(given, str) or not NAME.fullmatch(given):
            raise bad_request(f"{given!r:.60} is no name of a session", mend="letters, digits and . _ : -, 128 at most")
        if given in ROUTES:
            raise bad_request(f"{given!r} is a route, and no name of a session", mend=f"any but {', '.join(ROUTES)}")
        return given

    def _attempt(self, name: str, body: Mapping[str, Any]) -> Attempt:
        metadata = body.get("metadata", {})
        if not isinstance(metadata, dict):
            raise bad_request(f"`metadata` is {type(metadata).__name__}, expected an object")
        sampling = replace(
            self._sampling,
            temperature=_or(temperature(body), self._sampling.temperature),
            max_new_tokens=_or(integer(body, "max_new_tokens", 1), self._sampling.max_new_tokens),
        )
        task = Task(name, UNKNOWN_PROMPT, metadata=metadata)
        seed = _or(integer(body, "seed", 0), self._seed)
        return Attempt(name, task, 0, 0, 0, "session", sampling, seed)

    def _rules_of(self, body: Mapping[str, Any]) -> SessionRules:
        history, matcher = body.get("history"), body.get("matcher")
        for key, value, known in (("history", history, POLICIES), ("matcher", matcher, MATCHERS)):
            if value is not None and value not in known:
                raise bad_request(f"`{key}` is {value!r:.40}", mend=f"one of {', '.join(known)}")
        return SessionRules(history or self._rules.policy, MATCHERS[matcher]() if matcher else self._rules.matcher)


UNKNOWN_PROMPT = "(a session: its first call brings the prompt)"


def collected_json(session: Session) -> dict[str, Any]:
    """What was sampled in a session, as JSON data: see `contracts.sessions.Collected` and `types.sequence.Sequence`."""
    collected: Collected = session.collect()
    return {
        "id": session.id,
        "turns": collected.turns,
        "truncated": collected.truncated,
        "text": collected.text,
        "facts": dict(collected.facts),
        "sequences": [
            {
                "tokens": sequence.tokens.tolist(),
                "sampled": sequence.sampled.astype(int).tolist(),
                "logprobs": [] if sequence.logprobs is None else sequence.logprobs.tolist(),
                "versions": sequence.versions.tolist(),
                "spans": [
                    {
                        "start": span.start,
                        "stop": span.stop,
                        "version": span.version,
                        "engine": span.engine,
                        "request": span.request,
                        "turn": span.turn,
                        "temperature": span.temperature,
                    }
                    for span in sequence.spans
                ],
                **_images(sequence),
            }
            for sequence in collected.sequences
        ],
    }


def _images(sequence: Sequence) -> dict[str, Any]:
    """Which tokens stand for which image; nothing where there is none."""
    if not sequence.images:
        return {}
    rows = [
        {
            "start": span.start,
            "stop": span.stop,
            "digest": span.image.digest,
            "media_type": span.image.media_type,
            "width": span.image.width,
            "height": span.image.height,
        }
        for span in sequence.images
    ]
    return {"images": rows}


def unknown_session(name: str) -> SessionFault:
    return SessionFault(404, "unknown_session", f"there is no session {name!r:.60}")


def _or(value: Any, otherwise: Any) -> Any:
    return otherwise if value is None else value
