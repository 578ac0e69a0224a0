"""`miles session serve`: sessions in front of engines that read a model from disk. Nothing trains."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from miles_core.contracts.component import BuildContext
from miles_core.contracts.lifecycle import RealClock
from miles_core.contracts.model import ModelFiles, ModelSpec, Renderer
from miles_core.contracts.observing import Handle, Runtime
from miles_core.contracts.sessions import SessionRules
from miles_core.contracts.transport import Form
from miles_core.errors import RequestError, WorkerDied
from miles_core.loop.keeper import LOOK_SECONDS, Keeper
from miles_core.loop.sessions import why_no_images
from miles_core.loop.traces import Traces
from miles_core.loop.weight_sources import DiskWeights
from miles_core.observe.faults import sentence
from miles_core.recipe.service import Service
from miles_core.session.matching import CheckedMatcher
from miles_core.session.server import SessionServer, listen
from miles_core.session.store import Limits
from miles_core.types.sampling import Sampling

log = logging.getLogger(__name__)

VERSION = 1
"""The weight version of the model's own files."""


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
    engine is left: one that dies or hangs is started again a few times. Whatever ends it: processes are ended, and
    sessions are closed and traced.
    """
    with listen(host, port) as listening:
        tracing = Traces(traces, secrets.token_hex(4)) if traces is not None else None
        model, renderer = await asyncio.to_thread(_materialise, service)
        runtime: Runtime = service.runtime.build(_context(service, f"runtime-{service.runtime.name}"))
        keeper = None
        try:
            keeper = await _start_engines(service, runtime, model)
            engines = keeper.engines
            contexts = [(await engine.capabilities()).context for engine in engines]
            bounds = limits or Limits()
            refused = await why_no_images(engines)
            server = SessionServer(
                keeper.fleet,
                renderer,
                RealClock(),
                model=service.card.name,
                context=min(service.card.context, *contexts),
                limits=replace(bounds, images=replace(bounds.images, refused=refused)),
                listening=listening,
            )
            server.store.ended = tracing.keep if tracing is not None else None
            operator = server.operated(_sampling(service, renderer), rules=_rules(service, history), seed=service.seed)
            await server.start()
            try:
                announce({"base_url": server.base_url, "operator_key": operator.key, "model": service.card.name})
                await _until_spent(keeper)
            finally:
                await server.stop()
        finally:
            if keeper is not None:
                await keeper.close()
            await runtime.close()


def _materialise(service: Service) -> tuple[ModelFiles, Renderer]:
    spec: ModelSpec = service.model.build(_context(service, "model"))
    return spec.materialise(), spec.renderer()


def _context(service: Service, name: str) -> BuildContext:
    return BuildContext(service.seed, name)


async def _start_engines(service: Service, runtime: Runtime, model: ModelFiles) -> Keeper:
    """Engines that hold the model's own weights."""
    parts = {"precision": service.precision} if service.precision is not None else {}

    def start(name: str) -> Coroutine[Any, Any, Handle]:
        return runtime.start(service.engine, BuildContext(service.seed, name, model=model, parts=parts))

    keeper = Keeper([f"engine-{number}" for number in range(service.replicas)], start, _Told())
    await keeper.start()
    for engine in keeper.engines:
        if Form.DISK not in (await engine.capabilities()).forms:
            raise RequestError(f"engine {engine.name!r} cannot read weights from disk, so it cannot be served alone")
    await keeper.publish(DiskWeights(model.path), VERSION)
    return keeper


class _Told:
    """What becomes of engines is logged."""

    def emit(self, name: str, /, **facts: Any) -> None:
        if line := sentence(name, facts):
            log.warning(line)


def _sampling(service: Service, renderer: Renderer) -> Sampling:
    return replace(service.sampling, stop_tokens=renderer.stop_tokens)


def _rules(service: Service, history: str) -> SessionRules:
    matcher = None
    if service.matcher is not None:
        matcher = CheckedMatcher(service.matcher.build(_context(service, f"matcher-{service.matcher.name}")))
    return SessionRules(history or service.history or "linear", matcher)


async def _until_spent(keeper: Keeper) -> None:
    """Returns never. Raises WorkerDied when the last engine has died, and none is started again."""
    while not keeper.spent:
        await asyncio.sleep(LOOK_SECONDS)
    raise WorkerDied(f"no engine is left: {'; '.join(life.why for life in keeper.lives.values())}")
