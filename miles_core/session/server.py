"""The port: sessions served over HTTP from this process, and `contracts.sessions.Sessions` for generators."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import socket
from collections.abc import Iterator
from typing import Any, NoReturn

import uvicorn

from miles_core.contracts.engine import EngineClient
from miles_core.contracts.lifecycle import Clock
from miles_core.contracts.model import Renderer
from miles_core.contracts.rollout import Attempt
from miles_core.contracts.sessions import Collected, SessionAddress, SessionRules
from miles_core.errors import RequestError, RunError
from miles_core.session.http import SessionApp
from miles_core.session.operator import Operator
from miles_core.session.store import Limits, SessionStore
from miles_core.types.sampling import Sampling

log = logging.getLogger(__name__)

GRACE_SECONDS = 2
KEEP_ALIVE_SECONDS = 600


def listen(host: str = "127.0.0.1", port: int = 0) -> socket.socket:
    """A socket bound to an address; port 0 is any free one. Raises RequestError when it cannot be had."""
    # asyncio turns Nagle's delay off, 40 ms a reply, only where the protocol is named
    listening = socket.socket(
        socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
    except OSError as error:
        listening.close()
        raise RequestError(f"cannot serve sessions at {host}:{port}: {error.strerror or error}") from error
    return listening


class _Server(uvicorn.Server):
    """Signals belong to the driver."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class SessionServer:
    """See `contracts.sessions.Sessions`. `listening` is what `listen` gave; by default a free port of loopback."""

    def __init__(
        self,
        engines: EngineClient,
        renderer: Renderer,
        clock: Clock,
        *,
        model: str,
        context: int,
        limits: Limits | None = None,
        listening: socket.socket | None = None,
    ) -> None:
        self.store = SessionStore(engines, renderer, clock, context, limits)
        self._app = SessionApp(self.store, renderer, model, context)
        self._clock = clock
        self._listening = listening or listen()
        self._host, self._port = self._listening.getsockname()[:2]
        self._serving: asyncio.Task[None] | None = None
        self._sweeping: asyncio.Task[None] | None = None

    @property
    def base_url(self) -> str:
        """With `/v1`, as OpenAI's clients want it."""
        host = f"[{self._host}]" if ":" in self._host else self._host
        return f"http://{host}:{self._port}/v1"

    def operated(self, sampling: Sampling, *, rules: SessionRules = SessionRules(), seed: int = 0) -> Operator:
        """From now on sessions are opened, collected and ended over HTTP too, by the key of the operator returned; they
        sample so, and have these rules, unless they ask for other."""
        self._app.operator = Operator(self.store, self._urls, sampling=sampling, rules=rules, seed=seed)
        return self._app.operator

    async def start(self) -> None:
        """Answer calls."""
        config = uvicorn.Config(
            self._app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            timeout_keep_alive=KEEP_ALIVE_SECONDS,
            timeout_graceful_shutdown=GRACE_SECONDS,
        )
        self._server = _Server(config)
        self._serving = asyncio.create_task(self._server.serve(sockets=[self._listening]), name="session server")
        while not self._server.started:
            if self._serving.done():
                self._serving.result()
                raise RunError("the session server ended before it had begun")
            await asyncio.sleep(0.001)
        self._sweeping = asyncio.create_task(self._sweep(), name="ending idle sessions")

    def metrics(self) -> dict[str, float]:
        """See `SessionStore.metrics`."""
        return self.store.metrics()

    async def open(self, attempt: Attempt, rules: SessionRules = SessionRules()) -> SessionAddress:
        return SessionAddress(self.base_url, self.store.open(attempt, rules))

    async def watch(self, api_key: str) -> NoReturn:
        await asyncio.shield(self.store.find(api_key).broken)
        raise AssertionError("a session that is not broken never ends its watch")

    async def inspect(self, api_key: str) -> dict[str, Any]:
        """The session's turns as JSON data, those that are not trained on included."""
        return self.store.find(api_key).inspect()

    async def collect(self, api_key: str) -> Collected:
        return self.store.find(api_key).collect()

    async def close(self, api_key: str) -> None:
        self.store.close(api_key)

    async def stop(self) -> None:
        """End every session and free the port. Idempotent."""
        self.store.close_all()
        if self._serving is None:
            self._listening.close()
            return
        if self._sweeping is not None:
            self._sweeping.cancel()
        self._server.should_exit = True
        (failure,) = await asyncio.gather(self._serving, return_exceptions=True)
        self._serving = None
        if isinstance(failure, BaseException):
            log.warning("the session server had failed", exc_info=failure)

    def _urls(self, name: str) -> dict[str, str]:
        """A session's base URLs: OpenAI's clients want `/v1` in them, Anthropic's add it themselves."""
        root = f"{self.base_url.removesuffix('/v1')}/sessions/{name}"
        return {"base_url": f"{root}/v1", "anthropic_base_url": root}

    async def _sweep(self) -> None:
        """Idle sessions end in time though nobody calls."""
        while True:
            await self._clock.sleep(min(60.0, self.store.limits.idle_seconds))
            self.store.expire()
