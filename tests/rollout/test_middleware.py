"""Middleware with plain objects: what the classes pass on, `limit` on a clock that a test turns, `trace`."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from miles_core import (
    Agent,
    AgentMiddleware,
    Attempt,
    BuildContext,
    Episode,
    GenerateContext,
    Generator,
    GeneratorMiddleware,
    Outcome,
    Rollout,
    RolloutMiddleware,
    RunError,
    Sampling,
    Sequence,
    Span,
    Status,
    Task,
    Trajectory,
)
from miles_core.contracts.middleware import LAYER_METHODS
from miles_core.rollout.limit import Limit, LimitOptions
from miles_core.rollout.trace import Trace, TraceOptions

TASK = Task("t1", ({"role": "user", "content": "hi"},))


class Turned:
    """A clock that a test turns; sleepers wake in order of time."""

    def __init__(self) -> None:
        self.time = 0.0
        self.slept: list[float] = []

    def now(self) -> float:
        return self.time

    async def sleep(self, seconds: float) -> None:
        self.slept.append(self.time + seconds)
        await asyncio.sleep(0)


class Counted:
    """A generator that holds every attempt until it is let go, and knows how many it held at once."""

    needs_engine = False

    def __init__(self) -> None:
        self.now = self.most = self.made = 0
        self.gate = asyncio.Event()

    async def generate(self, attempt: Attempt, context: GenerateContext) -> Trajectory:
        self.now += 1
        self.most = max(self.most, self.now)
        await self.gate.wait()
        self.now -= 1
        self.made += 1
        return trajectory_of(attempt)


def trajectory_of(attempt: Attempt) -> Trajectory:
    sampled = np.array([False, True, True])
    sequence = Sequence(
        np.zeros(3, np.int32),
        sampled,
        np.zeros(3, np.float32),
        np.array([0, 1, 1], np.int32),
        (Span(1, 3, 1, "e", "r"),),
    )
    return Trajectory(attempt.id, attempt.task.id, attempt.index, (sequence,), status=Status.TRUNCATED)


def attempt(index: int = 0) -> Attempt:
    return Attempt(f"g0.{index}", TASK, 0, 0, index, "rollout", Sampling(), 1)


def context(clock: Any = None) -> GenerateContext:
    return GenerateContext(engines=None, renderer=None, clock=clock or Turned())  # type: ignore[arg-type]


async def settle() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


async def test_limit_lets_so_many_in_and_loses_none() -> None:
    inner = Counted()
    limit = Limit(LimitOptions(concurrent=3), BuildContext(1, "limit")).wrap(inner)
    running = [asyncio.create_task(limit.generate(attempt(i), context())) for i in range(8)]
    await settle()
    assert inner.now == 3
    inner.gate.set()
    made = await asyncio.gather(*running)
    assert [t.index for t in made] == list(range(8)) and inner.most == 3


async def test_limit_is_one_for_everything_that_it_wraps() -> None:
    inner = Counted()
    limit = Limit(LimitOptions(concurrent=2), BuildContext(1, "limit"))
    both = [limit.wrap(inner), limit.wrap(inner)]
    running = [asyncio.create_task(both[i % 2].generate(attempt(i), context())) for i in range(6)]
    await settle()
    assert inner.now == 2
    inner.gate.set()
    await asyncio.gather(*running)


async def test_limit_makes_room_when_an_attempt_fails_or_is_cancelled() -> None:
    class Failing(Counted):
        async def generate(self, attempt: Attempt, context: GenerateContext) -> Trajectory:
            if attempt.index == 0:
                raise RuntimeError("no")
            return await super().generate(attempt, context)

    inner = Failing()
    limit = Limit(LimitOptions(concurrent=1), BuildContext(1, "limit")).wrap(inner)
    with pytest.raises(RuntimeError):
        await limit.generate(attempt(0), context())
    held = asyncio.create_task(limit.generate(attempt(1), context()))
    await settle()
    held.cancel()
    await asyncio.gather(held, return_exceptions=True)
    inner.gate.set()
    assert (await limit.generate(attempt(2), context())).index == 2


async def test_limit_begins_so_many_a_second_on_the_clock() -> None:
    clock, inner = Turned(), Counted()
    inner.gate.set()
    limit = Limit(LimitOptions(concurrent=9, per_second=4), BuildContext(1, "limit")).wrap(inner)
    await asyncio.gather(*(limit.generate(attempt(i), context(clock)) for i in range(4)))
    assert clock.slept == [0.25, 0.5, 0.75]
    clock.time = 10.0  # idle seconds are not saved up
    await asyncio.gather(*(limit.generate(attempt(i), context(clock)) for i in range(2)))
    assert clock.slept[3:] == [10.25]


def test_limit_refuses_numbers_that_mean_nothing() -> None:
    for wrong in ({"concurrent": 0}, {"concurrent": 1, "per_second": 0}, {}):
        with pytest.raises(ValueError):
            LimitOptions.model_validate(wrong)


class Mixed:
    """Truncates, raises, or waits for ever."""

    needs_engine = True

    async def generate(self, attempt: Attempt, context: GenerateContext) -> Trajectory:
        context.clock.time += 1.5  # type: ignore[attr-defined]
        if attempt.index == 1:
            raise ValueError("no idea")
        if attempt.index == 2:
            await asyncio.Event().wait()
        return trajectory_of(attempt)


async def test_trace_writes_a_line_for_each_attempt_however_it_ended(tmp_path: Path) -> None:
    trace = Trace(TraceOptions(), BuildContext(1, "trace", tmp_path)).wrap(Mixed())
    await trace.generate(attempt(0), context())
    with pytest.raises(ValueError, match="no idea"):
        await trace.generate(attempt(1), context())
    held = asyncio.create_task(trace.generate(attempt(2), context()))
    await settle()
    held.cancel()
    await asyncio.gather(held, return_exceptions=True)
    header, *lines = [json.loads(line) for line in (tmp_path / "trace.jsonl").read_text().splitlines()]
    assert header == {"format": "miles.trace", "version": 1}
    assert [(each["attempt"], each["status"], each["tokens"]) for each in lines] == [
        ("g0.0", "truncated", 2),
        ("g0.1", "failed", 0),
        ("g0.2", "cancelled", 0),
    ]
    assert lines[0]["seconds"] == 1.5 and lines[0]["task"] == "t1" and lines[0]["purpose"] == "rollout"
    assert lines[1]["error"] == "ValueError: no idea"


async def test_trace_goes_on_in_its_file_and_names_a_disk_that_refuses(tmp_path: Path) -> None:
    for _ in range(2):
        await Trace(TraceOptions(), BuildContext(1, "trace", tmp_path)).wrap(Mixed()).generate(attempt(), context())
    assert (tmp_path / "trace.jsonl").read_text().count("miles.trace") == 1
    gone = Trace(TraceOptions(), BuildContext(1, "trace", tmp_path / "gone")).wrap(Mixed())
    with pytest.raises(RunError, match=r"trace\.jsonl: could not be written"):
        await gone.generate(attempt(), context())
    with pytest.raises(ValueError):
        TraceOptions(file="../elsewhere")


async def test_the_classes_pass_everything_on() -> None:
    asked: list[str] = []

    class Inner:
        needs_engine = False

        def __getattr__(self, name: str) -> Any:
            async def later(*arguments: object) -> str:
                asked.append(name)
                return name

            def now(*arguments: object) -> str:
                asked.append(name)
                return name

            return later if name in ("run", "generate", "start", "drain", "close") else now

    for wrapper in (AgentMiddleware(), GeneratorMiddleware(), RolloutMiddleware()):
        outer = wrapper.wrap(Inner())  # type: ignore[arg-type]
        assert not hasattr(wrapper, "inner")
        for name in LAYER_METHODS[wrapper.layer]:
            if name == "needs_engine":
                assert outer.needs_engine is False  # type: ignore[union-attr]
                continue
            several = {"generate": 2, "drain": 0, "state": 0, "close": 0}.get(name, 1)
            result = getattr(outer, name)(*[None] * several)
            assert (await result if asyncio.iscoroutine(result) else result) in (name, None)
    assert asked == ["run", "generate", "start", "grant", "drain", "state", "restore", "close"]


async def test_an_author_overrides_one_method() -> None:
    class Twice(AgentMiddleware):
        async def run(self, episode: Episode) -> Outcome:
            await self.inner.run(episode)
            return await self.inner.run(episode)

    class Counter:
        runs = 0

        async def run(self, episode: Episode) -> Outcome:
            self.runs += 1
            return Outcome(float(self.runs))

    agent = Counter()
    assert (await Twice().wrap(agent).run(None)).reward == 2.0  # type: ignore[arg-type]


def test_a_layer_s_methods_are_those_of_its_contract() -> None:
    contracts = {"agent": Agent, "generator": Generator, "rollout": Rollout}
    for layer, contract in contracts.items():
        assert sorted(LAYER_METHODS[layer]) == sorted(name for name in vars(contract) if not name.startswith("_"))
    for wrapper in (AgentMiddleware, GeneratorMiddleware, RolloutMiddleware):
        assert set(LAYER_METHODS[wrapper.layer]) <= set(vars(wrapper))
