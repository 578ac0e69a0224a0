"""Middleware: what stands around an agent, a generator or a rollout, such as a limit, a trace or a cache.

A recipe lists it (`middleware: [{use: limit, concurrent: 64}, {use: trace}]`). It is composed once, before there is any
work, outermost first in the order of the list, separately for each layer. What training does goes through it, and so do
the attempts of evaluations that share the run's generator.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Generic, Literal, Protocol, Self, TypeVar

from miles_core.contracts.rollout import (
    Agent,
    Attempt,
    Episode,
    GenerateContext,
    Generator,
    Outcome,
    Rollout,
    RolloutContext,
)
from miles_core.types.trajectory import Trajectory

Layer = Literal["agent", "generator", "rollout"]
Inner = TypeVar("Inner")

LAYER_METHODS: Mapping[str, tuple[str, ...]] = {
    "agent": ("run",),
    "generator": ("generate", "needs_engine"),
    "rollout": ("start", "grant", "drain", "state", "restore", "close"),
}
"""Layer -> the names that what `wrap` returns must have: those of the layer's own contract."""

BESIDE = ("remake", "foresee", "repace")
"""What a rollout may do beside its contract (`Remakes`, `GivesUp`, `Repaces`)."""


class Middleware(Protocol):
    """Wraps one layer. Built with `factory(options, context)` in the driver, once for each phase.

    `wrap` is called before any work, more than once when a phase has several generators to wrap (the one that trains
    and another that evaluates); it returns an object that keeps the contract of `inner`, wholly:

    - generator: `needs_engine` says what the inner one says, `generate` returns one trajectory or raises;
    - rollout: `state` and `restore` continue the inner one's work, `close` closes it;
    - agent: `run` ends soon after `episode.cancelled` is set.

    The easiest way to keep it is to derive from `AgentMiddleware`, `GeneratorMiddleware` or `RolloutMiddleware`, which
    pass everything on, and to override one method.
    """

    @property
    def layer(self) -> Layer: ...

    def wrap(self, inner: Any) -> Any: ...


class _Wrapping(Generic[Inner]):
    """`wrap` of the classes below: a shallow copy of the middleware around `inner`. What `__init__` made (a semaphore,
    an open file) is shared by all copies."""

    inner: Inner

    def wrap(self, inner: Inner) -> Self:
        wrapped = copy.copy(self)
        wrapped.inner = inner
        return wrapped


class AgentMiddleware(_Wrapping[Agent]):
    """An agent around `self.inner`; override `run`."""

    layer: Layer = "agent"

    async def run(self, episode: Episode) -> Outcome:
        return await self.inner.run(episode)


class GeneratorMiddleware(_Wrapping[Generator]):
    """A generator around `self.inner`; override `generate`."""

    layer: Layer = "generator"

    @property
    def needs_engine(self) -> bool:
        return self.inner.needs_engine

    async def generate(self, attempt: Attempt, context: GenerateContext) -> Trajectory:
        return await self.inner.generate(attempt, context)


class RolloutMiddleware(_Wrapping[Rollout]):
    """A rollout around `self.inner`; override what it changes. One with a state of its own adds it in `state` and takes
    it out in `restore`. What the inner one does beside its contract, this one does."""

    layer: Layer = "rollout"

    def __getattr__(self, name: str) -> Any:
        if name in BESIDE and "inner" in vars(self):
            return getattr(self.inner, name)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    async def start(self, context: RolloutContext) -> None:
        await self.inner.start(context)

    def grant(self, groups: int) -> None:
        self.inner.grant(groups)

    async def drain(self) -> None:
        await self.inner.drain()

    def state(self) -> Mapping[str, Any]:
        return self.inner.state()

    def restore(self, state: Mapping[str, Any]) -> None:
        self.inner.restore(state)

    async def close(self) -> None:
        await self.inner.close()
