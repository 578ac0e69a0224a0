"""Routes. A client's session is named by its key alone, so a path may have any prefix; what a path ends with says which
dialect is spoken, and every failure is told in it."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from starlette.requests import ClientDisconnect, Request
from starlette.types import Message as Event
from starlette.types import Receive, Scope, Send

from miles_core.contracts.model import Renderer
from miles_core.session import models
from miles_core.session.anthropic import Anthropic
from miles_core.session.body import read_body
from miles_core.session.call import ChatRequest
from miles_core.session.deliver import Delivery, send_fault, send_json
from miles_core.session.dialect import Dialect, Forms, Served
from miles_core.session.faults import SessionFault, bad_request
from miles_core.session.openai_chat import OpenAIChat
from miles_core.session.openai_responses import OpenAIResponses
from miles_core.session.operator import Operator, collected_json, unknown_session
from miles_core.session.recall import Recall
from miles_core.session.session import Session
from miles_core.session.store import SessionStore
from miles_core.session.token_in import TokenIn

log = logging.getLogger(__name__)

CHAT, ANTHROPIC = OpenAIChat(), Anthropic()
DIALECTS: Mapping[str, Dialect] = {
    "/chat/completions": CHAT,
    "/messages": ANTHROPIC,
    "/responses": OpenAIResponses(),
    "/inference/v1/generate": TokenIn(),
}
COUNT = "/messages/count_tokens"
NAMED = re.compile(r"/sessions/([^/]+)/")
OURS = SessionFault(500, "internal_error", "the session server failed; its log says where")


class SessionApp:
    """The ASGI application over a store of sessions; with an operator, its life cycle too."""

    def __init__(self, store: SessionStore, renderer: Renderer, model: str, context: int) -> None:
        self.operator: Operator | None = None
        self._store = store
        self._renderer = renderer
        self._model = model
        self._context = context
        self._recalls: WeakKeyDictionary[Session, dict[Forms, Recall]] = WeakKeyDictionary()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        path = scope["path"].rstrip("/")
        dialect = _dialect(path, request)
        begun = False

        async def sending(event: Event) -> None:
            nonlocal begun
            begun = True
            await send(event)

        try:
            await self._answer(request, path, receive, sending)
        except SessionFault as fault:
            self._store.faults[fault.code] += 1
            await send_fault(sending, dialect, fault)
        except ClientDisconnect:
            self._store.faults["client_left"] += 1
        except Exception:  # ours: the client learns that, the log has the traceback
            log.exception("a call failed inside the session server")
            self._store.faults["internal_error"] += 1
            if begun:
                raise
            await send_fault(sending, dialect, OURS)

    async def _answer(self, request: Request, path: str, receive: Receive, send: Send) -> None:
        for end, dialect in DIALECTS.items():
            if path.endswith(end):
                _expect(request, "POST")
                return await self._call(request, dialect, receive, send)
        if path.endswith(COUNT):
            _expect(request, "POST")
            return await self._count(request, send)
        before, _, last = path.rpartition("/")
        if last == "models" or before.endswith("/models"):
            _expect(request, "GET")
            make = models.listing if last == "models" else models.one
            return await send_json(send, 200, make(self._model, self._context))
        if last in ("health", ""):
            _expect(request, "GET", "HEAD")
            return await send_json(send, 200, {"status": "ok", "sessions": len(self._store)})
        if last == "sessions" or before.endswith("/sessions") or before.rpartition("/")[0].endswith("/sessions"):
            return await self._life_cycle(request, path.rpartition("/sessions")[2].strip("/"), send)
        served = ", ".join(f"POST …/v1{end}" for end in DIALECTS)
        raise SessionFault(404, "unknown_route", f"nothing is served at {path or '/'}", mend=served)

    async def _call(self, request: Request, dialect: Dialect, receive: Receive, send: Send) -> None:
        session, body = await self._session(request)
        call = dialect.read(body, self._served(session))
        limits, faults = self._store.limits, self._store.faults
        delivery = Delivery(receive, send, dialect, faults, seconds=limits.call_seconds, beat=limits.beat_seconds)
        await delivery.run(session, call)

    async def _count(self, request: Request, send: Send) -> None:
        """How many tokens a call would send: nothing is recorded."""
        session, body = await self._session(request)
        asked = ANTHROPIC.read(body, self._served(session)).request
        assert isinstance(asked, ChatRequest)
        await send_json(send, 200, {"input_tokens": session.count(asked)})

    async def _session(self, request: Request) -> tuple[Session, dict[str, Any]]:
        """The session that a call is for, and its body. The operator's key opens the session that the call names."""
        key, limit = _key(request), self._store.limits.body_bytes
        if self.operator is None or not self.operator.owns(key):
            session = self._store.find(key)
            return session, await read_body(request, limit)
        body = await read_body(request, limit)
        metadata = body.get("metadata")
        inner = metadata.get("session_id") if isinstance(metadata, dict) else None
        named = NAMED.search(request.url.path)
        name = named[1] if named else request.headers.get("x-session-id") or body.get("session_id") or inner
        if name is None:
            raise bad_request(
                "the operator's key opens any session, and the call names none",
                code="session_not_named",
                mend="call …/sessions/NAME/v1, or send X-Session-ID or `session_id`, or a session's own key",
            )
        return self.operator.named(name), body

    async def _life_cycle(self, request: Request, rest: str, send: Send) -> None:
        """`sessions`: create, list. `sessions/NAME`: look at it, end it. `sessions/NAME/trajectory`: collect it."""
        operator, key = self.operator, _key(request)
        name, _, what = rest.partition("/")
        if operator is None or not operator.owns(key):
            await self._own(request, name, what, send)
        elif not name:
            _expect(request, "GET", "POST")
            if request.method == "GET":
                return await send_json(send, 200, operator.listing())
            await send_json(
                send, 201, operator.open(await read_body(request, self._store.limits.body_bytes, empty=True))
            )
        else:
            session = self._store.named(name)
            if session is None:
                raise unknown_session(name)
            await self._look(request, session, what, send)
        return None

    async def _own(self, request: Request, name: str, what: str, send: Send) -> None:
        """A session's own key looks at that session alone."""
        session = self._store.find(_key(request))
        if name != session.id or request.method != "GET":
            raise SessionFault(403, "not_allowed", "this takes the operator's key: a session's own looks at itself")
        await self._look(request, session, what, send)

    async def _look(self, request: Request, session: Session, what: str, send: Send) -> None:
        if what not in ("", "trajectory"):
            raise SessionFault(404, "unknown_route", f"a session has no {what!r:.40}", mend="`trajectory`, or nothing")
        if what == "trajectory":
            _expect(request, "GET")
            return await send_json(send, 200, collected_json(session))
        _expect(request, "GET", "DELETE")
        if request.method == "DELETE":
            last = collected_json(session)
            self._store.close_named(session.id)
            return await send_json(send, 200, last)
        return await send_json(send, 200, session.inspect())

    def _served(self, session: Session) -> Served:
        recalls = self._recalls.setdefault(session, {})

        def recall(forms: Forms) -> Recall:
            return recalls.setdefault(forms, Recall(session.conversation.tree, forms))

        return Served(self._model, self._token_text, lambda forms: recall(forms).find, session.earlier)

    def _token_text(self, token: int) -> str:
        return self._renderer.decode(np.array([token], np.int32))


def _dialect(path: str, request: Request) -> Dialect:
    """Whose errors the client reads."""
    spoken = next((dialect for end, dialect in DIALECTS.items() if path.endswith(end)), None)
    own = path.endswith(COUNT) or "anthropic-version" in request.headers
    return spoken or (ANTHROPIC if own else CHAT)


def _expect(request: Request, *methods: str) -> None:
    if request.method not in methods:
        takes = " or ".join(methods)
        raise SessionFault(405, "wrong_method", f"{request.url.path} takes {takes}, not {request.method}")


def _key(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "").strip()
