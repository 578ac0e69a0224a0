"""Middleware: stands around one layer and keeps that layer's contract, for results, errors and cancellation alike."""

from __future__ import annotations

import asyncio
import difflib
import inspect
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from miles_core.contracts.lifecycle import RealClock
from miles_core.contracts.middleware import (
    LAYER_METHODS,
    AgentMiddleware,
    GeneratorMiddleware,
    Middleware,
    RolloutMiddleware,
)
from miles_core.contracts.protocols import PROTOCOLS, differences
from miles_core.contracts.rollout import Attempt, Episode, GenerateContext, Outcome, RolloutContext
from miles_core.testing.fakes.contexts import make_attempt, make_generate_context
from miles_core.testing.fakes.makers import make_task, make_trajectory
from miles_core.testing.kit.check import Grade, check, expect, inapplicable
from miles_core.testing.kit.living import SOON, cancelled, nothing_left, settle, soon
from miles_core.testing.kit.samples import snapshot
from miles_core.testing.kit.stalls import expect_free_loop
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.types.sampling import Sampling
from miles_core.types.trajectory import Trajectory

WORKING_LAYERS = ("agent", "generator")
MANY = 24
PASSING_ON = (AgentMiddleware, GeneratorMiddleware, RolloutMiddleware)


class _Generator:
    """An inner generator: answers with the attempt's id, raises `error`, or waits for ever."""

    def __init__(self, needs_engine: bool = True) -> None:
        self.needs_engine = needs_engine
        self.error: Exception | None = None
        self.hangs = False
        self.ended_early = 0

    async def generate(self, attempt: Attempt, context: GenerateContext) -> Trajectory:
        await self.work()
        return make_trajectory(attempt.id, task=attempt.task, index=attempt.index, id=attempt.id)

    async def work(self) -> None:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        try:
            if self.hangs:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.ended_early += 1
            raise


class _Agent(_Generator):
    async def run(self, episode: Episode) -> Outcome:
        waiting = asyncio.ensure_future(episode.cancelled.wait())
        working = asyncio.ensure_future(self.work())
        try:
            await asyncio.wait({waiting, working}, return_when=asyncio.FIRST_COMPLETED)
            if working.done():
                working.result()
        finally:
            for each in (waiting, working):
                each.cancel()
            await asyncio.gather(waiting, working, return_exceptions=True)
        return Outcome(0.5, {"task": episode.task.id})


class _Rollout:
    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []

    async def start(self, context: RolloutContext) -> None:
        self.calls.append(("start", None))

    def grant(self, groups: int) -> None:
        self.calls.append(("grant", groups))

    async def drain(self) -> None:
        self.calls.append(("drain", None))

    def state(self) -> Mapping[str, Any]:
        return {"inner": 7}

    def restore(self, state: Mapping[str, Any]) -> None:
        self.calls.append(("restore", state.get("inner")))

    async def close(self) -> None:
        self.calls.append(("close", None))


@check(
    "middleware",
    Grade.GOLD,
    "it names a layer, overrides some of it, and keeps the contract of the rest",
    gate=True,
)
async def keeps_the_layer(subject: ComponentSubject) -> None:
    middleware: Middleware = subject.build()
    known = ", ".join(LAYER_METHODS)
    expect(middleware.layer in LAYER_METHODS, f"its layer is {middleware.layer!r}", f"name one of {known}")
    _expect_something_overridden(middleware)
    for inner in _inners(middleware.layer):
        wrapped = middleware.wrap(inner)
        found = list(differences(PROTOCOLS[middleware.layer], wrapped))
        expect(not found, "; ".join(what for what, _ in found), "; ".join(mend for _, mend in found))
        if isinstance(inner, _Generator) and middleware.layer == "generator":
            same = wrapped.needs_engine == inner.needs_engine
            expect(same, f"needs_engine is {wrapped.needs_engine}, of the inner one {inner.needs_engine}", "pass it on")


@check("middleware", Grade.GOLD, "results come through, each to its own caller, also when many are under way")
async def passes_results(subject: ComponentSubject) -> None:
    layer, wrapped, _ = _wrapped(subject)
    bare = _inners(layer)[0]
    with nothing_left("a call through it"):
        found = await asyncio.gather(*(_call(layer, wrapped, number) for number in range(MANY)))
    wanted = [await _call(layer, bare, number) for number in range(MANY)]
    expect(
        snapshot(found) == snapshot(wanted), "results differ from those without it", "return what the inner one gives"
    )


@check("middleware", Grade.GOLD, "what the inner one raises comes through as it is")
async def passes_errors(subject: ComponentSubject) -> None:
    layer, wrapped, inner = _wrapped(subject)
    inner.error = LookupError("no such thing inside")
    with nothing_left("a call that failed"):
        try:
            result = await asyncio.wait_for(_call(layer, wrapped, 0), 20)
        except LookupError as error:
            expect(str(error) == str(inner.error), f"the error says {error}", "let it through")
            return
        except BaseException as error:
            expect(False, f"LookupError became {type(error).__name__}: {error}", "let the error through as it is")
    expect(False, f"the inner one failed, and it returned {result!r:.200}", "let the error through: no result is none")


@check("middleware", Grade.GOLD, "when a call is cancelled, the inner one is cancelled too, and the next one works")
async def passes_cancellation(subject: ComponentSubject) -> None:
    layer, wrapped, inner = _wrapped(subject)
    inner.hangs = True
    with nothing_left("a cancelled call"):
        tasks = [asyncio.ensure_future(_call(layer, wrapped, number)) for number in range(MANY)]
        await settle()
        for task in tasks:
            await cancelled(task, "a call through it")
    expect(inner.ended_early, "the inner one was not cancelled", "await it, do not detach it")
    inner.hangs = False
    await soon(_call(layer, wrapped, 0), "a call after cancelled ones", "give back what a cancelled call holds")


@check("middleware", Grade.GOLD, "while a call goes through it, the event loop goes on")
async def leaves_the_loop_free(subject: ComponentSubject) -> None:
    layer, wrapped, _ = _wrapped(subject)
    await expect_free_loop(lambda: _call(layer, wrapped, 0), "a call through it")


@check("middleware", Grade.GOLD, "an agent inside it still ends soon after `cancelled` is set")
async def agents_stop(subject: ComponentSubject) -> None:
    layer, wrapped, inner = _wrapped(subject)
    if layer != "agent":
        inapplicable("it wraps no agent")
    inner.hangs = True
    episode = _episode(0)
    running = asyncio.ensure_future(wrapped.run(episode))
    await settle()
    episode.cancelled.set()
    done, _ = await asyncio.wait({running}, timeout=SOON)
    running.cancel()
    expect(
        done, f"it goes on {SOON:g} s after `cancelled` was set", "give the inner agent the episode's own `cancelled`"
    )


@check("middleware", Grade.GOLD, "a rollout inside it is started, granted, saved, restored and closed")
async def rollouts_live(subject: ComponentSubject) -> None:
    middleware: Middleware = subject.build()
    if middleware.layer != "rollout":
        inapplicable("it wraps no rollout")
    inner, again = _Rollout(), _Rollout()
    wrapped = middleware.wrap(inner)
    wrapped.grant(3)
    await soon(wrapped.drain(), "drain", "pass it on")
    subject_state = dict(wrapped.state())
    await soon(wrapped.close(), "close", "pass it on")
    names = [name for name, _ in inner.calls]
    expect("close" in names and "drain" in names, f"the inner one got {names}", "pass drain and close on")
    granted = sum(groups for name, groups in inner.calls if name == "grant")
    expect(granted == 3, f"3 groups were granted, {granted} inside", "pass grants on")
    second = subject.build().wrap(again)
    second.restore(subject_state)
    expect(
        ("restore", 7) in again.calls, f"restore came inside as {again.calls}", "keep the inner one's state in yours"
    )


def _expect_something_overridden(middleware: Any) -> None:
    """A misspelt method of one that derives from the core's classes would pass everything on, in silence."""
    own = type(middleware)
    base = next((each for each in own.__mro__ if each in PASSING_ON), None)
    if base is None:
        return
    names = (*LAYER_METHODS[middleware.layer], "wrap")
    changed = any(inspect.getattr_static(own, name, None) is not inspect.getattr_static(base, name) for name in names)
    added = [name for each in own.__mro__[: own.__mro__.index(base)] for name in vars(each) if not name.startswith("_")]
    near = [(each, found[0]) for each in added if (found := difflib.get_close_matches(each, names, n=1))]
    meant = f"; `{near[0][0]}` is called by nobody: did you mean `{near[0][1]}`?" if near else ""
    expect(
        changed,
        f"{own.__name__} overrides nothing of {base.__name__}{meant}",
        f"override one of {', '.join(LAYER_METHODS[middleware.layer])}: everything else is passed on",
    )


def _wrapped(subject: ComponentSubject) -> tuple[str, Any, Any]:
    middleware: Middleware = subject.build()
    if middleware.layer not in WORKING_LAYERS:
        inapplicable(f"it wraps a {middleware.layer}")
    inner = _inners(middleware.layer)[0]
    return middleware.layer, middleware.wrap(inner), inner


def _inners(layer: str) -> list[Any]:
    if layer == "agent":
        return [_Agent()]
    return [_Rollout()] if layer == "rollout" else [_Generator(), _Generator(needs_engine=False)]


async def _call(layer: str, wrapped: Any, number: int) -> Any:
    if layer == "agent":
        return await wrapped.run(_episode(number))
    return await wrapped.generate(
        replace(make_attempt(make_task(id=f"task-{number}")), id=f"a{number}"), make_generate_context(clock=RealClock())
    )


def _episode(number: int) -> Episode:
    return Episode(make_task(id=f"task-{number}"), "http://127.0.0.1:9/v1", "key", Sampling(), None, asyncio.Event())
