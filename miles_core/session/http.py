"""Routes. A session is named by its key alone, so a path may have any prefix."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Callable
from typing import Any

import numpy as np
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from miles_core.contracts.model import Renderer
from miles_core.session import openai_chat
from miles_core.session.faults import SessionFault, bad_request
from miles_core.session.session import ChatReply, ChatRequest, Session
from miles_core.session.store import SessionStore

log = logging.getLogger(__name__)

CLIENT_LEFT = 499
DRAINED = 16
"""A body that is too large is read to its end, and forgotten, up to this many times the limit: the client can then read
the answer. Beyond, the connection is closed."""


def make_app(store: SessionStore, renderer: Renderer, model: str, context: int) -> Starlette:
    """The application over a store of sessions."""
    routes = Routes(store, renderer, model, context)
    return Starlette(routes=[Route("/{path:path}", routes.serve, methods=["GET", "POST", "PUT", "DELETE", "PATCH"])])


class Routes:
    """One entry for everything, so that every failure is answered in a client's own shape and counted."""

    def __init__(self, store: SessionStore, renderer: Renderer, model: str, context: int) -> None:
        self._store = store
        self._renderer = renderer
        self._model = model
        self._context = context

    async def serve(self, request: Request) -> Response:
        try:
            return await self._answer(request)
        except SessionFault as fault:
            return self._refusal(fault)
        except ClientDisconnect:
            self._store.faults["client_left"] += 1
            return Response(status_code=CLIENT_LEFT)
        except Exception:  # ours: the client learns that, the log has the traceback
            log.exception("a call failed inside the session server")
            return self._refusal(SessionFault(500, "internal_error", "the session server failed; its log says where"))

    def _refusal(self, fault: SessionFault) -> Response:
        self._store.faults[fault.code] += 1
        headers = {"x-should-retry": "true" if fault.retry else "false"}
        return JSONResponse(openai_chat.error_body(fault), fault.status, headers)

    async def _answer(self, request: Request) -> Response:
        path = request.url.path.rstrip("/")
        if path.endswith("/chat/completions"):
            _expect(request, "POST")
            return await self._chat(request)
        if path.endswith("/models"):
            _expect(request, "GET")
            return JSONResponse(openai_chat.models(self._model, self._context))
        if path.endswith("/health"):
            _expect(request, "GET")
            return JSONResponse({"status": "ok", "sessions": len(self._store)})
        raise SessionFault(
            404, "unknown_route", f"nothing is served at {path or '/'}", mend="POST …/v1/chat/completions"
        )

    async def _chat(self, request: Request) -> Response:
        session = self._store.find(_key(request))
        body = await _body(request, self._store.limits.body_bytes)
        chat, shape = openai_chat.read_body(body, self._model)
        reply = await _while_connected(request, session, chat)
        if shape.stream:
            return StreamingResponse(openai_chat.events(reply, shape, self._token_text), media_type="text/event-stream")
        return JSONResponse(openai_chat.completion(reply, shape, self._token_text))

    def _token_text(self, token: int) -> str:
        return self._renderer.decode(np.array([token], np.int32))


def _expect(request: Request, method: str) -> None:
    if request.method != method:
        raise SessionFault(405, "wrong_method", f"{request.url.path} takes {method}, not {request.method}")


def _key(request: Request) -> str:
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else request.headers.get("x-api-key", "").strip()


async def _body(request: Request, limit: int) -> dict[str, Any]:
    """The JSON object of the body. Raises SessionFault: 413 when it is too large, 400 when it is no JSON object."""
    parts: list[bytes] = []
    size = 0
    async for part in request.stream():
        size += len(part)
        if size <= limit:
            parts.append(part)
        elif size > DRAINED * limit:
            break
        else:
            parts.clear()
    if size > limit:
        raise SessionFault(413, "body_too_large", f"the body is larger than {limit} bytes")
    try:
        body = json.loads(b"".join(parts))
    except (ValueError, RecursionError) as error:
        raise bad_request(f"the body is no JSON: {error}", code="malformed_json") from None
    if not isinstance(body, dict):
        raise bad_request(f"the body is {type(body).__name__}, expected an object", code="malformed_json")
    return body


async def _while_connected(request: Request, session: Session, chat: ChatRequest) -> ChatReply:
    """The session's reply; a client that leaves cancels its generation, and no half turn is kept."""
    work = asyncio.create_task(session.chat(chat))
    leaving = asyncio.create_task(_left(request.receive))
    try:
        await asyncio.wait({work, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            return work.result()
        raise ClientDisconnect
    finally:
        work.cancel()
        leaving.cancel()
        await asyncio.gather(work, leaving, return_exceptions=True)


async def _left(receive: Callable[[], Any]) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
