"""`miles session serve`: sessions in front of engines that read a model from disk. Nothing trains."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from miles_core.contracts.component import BuildContext
from miles_core.contracts.lifecycle import NoEvents, RealClock
from miles_core.contracts.model import ModelFiles, ModelSpec, Renderer
from miles_core.contracts.observing import Runtime
from miles_core.contracts.sessions import SessionRules
from miles_core.contracts.transport import Delivery, Form, UpdateManifest
from miles_core.errors import MilesError, RequestError, WorkerDied
from miles_core.loop.sessions import why_no_images
from miles_core.loop.traces import Traces
from miles_core.recipe.service import Service
from miles_core.rollout.fleet import Fleet
from miles_core.runtime.clients import RemoteEngine
from miles_core.session.matching import CheckedMatcher
from miles_core.session.server import SessionServer, listen
from miles_core.session.store import Limits
from miles_core.types.sampling import Sampling
from miles_core.weights.publication import publish

VERSION = 1
"""The weight version of the model's own files."""

LOOK_SECONDS = 0.5
"""How often the engines' processes are looked at."""


async def serve(
    service: Service,
    announce: Callable[[Mapping[str, Any]], None],
    *,
    host: str = "127.0.0.1",
    port: int = 0,
    history: str = "",
    traces: Path | None = None,
    limits: Limits | None = None,
) -> None:
    """Serve until cancelled. `announce` is told the base URL and the operator's key once sessions can be opened.
    `traces` is a folder that gets the trajectory of each session that ends.

    Raises RequestError when the port cannot be had or the engines cannot read weights from disk, WorkerDied when no
    engine is left. Whatever ends it: processes are ended, and sessions are closed and traced.
    """
    with listen(host, port) as listening:
        keeper = Traces(traces, secrets.token_hex(4)) if traces is not None else None
        model, renderer = await asyncio.to_thread(_materialise, service)
        runtime: Runtime = service.runtime.build(_context(service, f"runtime-{service.runtime.name}"))
        try:
            engines = await _start_engines(service, runtime, model)
            contexts = [(await engine.capabilities()).context for engine in engines]
            bounds = limits or Limits()
            refused = await why_no_images(engines)
            server = SessionServer(
                Fleet(engines, NoEvents()),
                renderer,
                RealClock(),
                model=service.card.name,
                context=min(service.card.context, *contexts),
                limits=replace(bounds, images=replace(bounds.images, refused=refused)),
                listening=listening,
            )
            server.store.ended = keeper.keep if keeper is not None else None
            operator = server.operated(_sampling(service, renderer), rules=_rules(service, history), seed=service.seed)
            await server.start()
            try:
                announce({"base_url": server.base_url, "operator_key": operator.key, "model": service.card.name})
                await _until_dead(engines)
            finally:
                await server.stop()
        finally:
            await runtime.close()


def _materialise(service: Service) -> tuple[ModelFiles, Renderer]:
    spec: ModelSpec = service.model.build(_context(service, "model"))
    return spec.materialise(), spec.renderer()


def _context(service: Service, name: str) -> BuildContext:
    return BuildContext(service.seed, name)


async def _start_engines(service: Service, runtime: Runtime, model: ModelFiles) -> tuple[RemoteEngine, ...]:
    """Engines that hold the model's own weights."""
    parts = {"precision": service.precision} if service.precision is not None else {}
    contexts = [
        BuildContext(service.seed, f"engine-{number}", model=model, parts=parts) for number in range(service.replicas)
    ]
    handles = await asyncio.gather(*(runtime.start(service.engine, context) for context in contexts))
    engines = tuple(RemoteEngine(handle) for handle in handles)
    for engine in engines:
        if Form.DISK not in (await engine.capabilities()).forms:
            raise RequestError(f"engine {engine.name!r} cannot read weights from disk, so it cannot be served alone")
    delivery = Delivery(Form.DISK, "disk", {"path": str(model.path)})

    async def read() -> None:
        await asyncio.gather(*(engine.load(delivery) for engine in engines))

    await publish(UpdateManifest(VERSION, Form.DISK), engines, read)
    return engines


def _sampling(service: Service, renderer: Renderer) -> Sampling:
    return replace(service.sampling, stop_tokens=renderer.stop_tokens)


def _rules(service: Service, history: str) -> SessionRules:
    matcher = None
    if service.matcher is not None:
        matcher = CheckedMatcher(service.matcher.build(_context(service, f"matcher-{service.matcher.name}")))
    return SessionRules(history or service.history or "linear", matcher)


async def _until_dead(engines: tuple[RemoteEngine, ...]) -> None:
    """Returns never. Raises WorkerDied when the last engine has died."""
    while any(engine.handle.alive for engine in engines):
        await asyncio.sleep(LOOK_SECONDS)
    try:
        await engines[-1].version()
    except MilesError as error:
        raise WorkerDied(f"no engine is left: {error}") from error
