"""A fleet: where sessions live, and what becomes of them when their engine dies."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest

from miles_core import GenerateRequest, NoiseKey, RequestError, Sampling, WorkerDied
from miles_core.rollout.fleet import Fleet
from miles_core.testing import ScriptedEngine


class Told:
    def __init__(self) -> None:
        self.events = []

    def emit(self, name, /, **facts) -> None:
        self.events.append((name, facts))


def request(session: str, length: int = 3, turn: int = 0) -> GenerateRequest:
    tokens = np.full(length, 65, np.int32)
    return GenerateRequest(
        f"{session}/{turn}", tokens, Sampling(max_new_tokens=9), NoiseKey(1, "t", session, 0, 0, turn), session
    )


def fleet_of(count: int = 2) -> tuple[list[ScriptedEngine], Fleet, Told]:
    engines, told = [ScriptedEngine(name=name) for name in "abcd"[:count]], Told()
    return engines, Fleet(engines, told), told


async def test_a_session_stays_and_a_new_one_goes_to_the_least_busy():
    (a, b), fleet, told = fleet_of()
    a.hang(), b.hang()
    running = [asyncio.create_task(fleet.generate(request(key))) for key in ("s1", "s2", "s1", "s1", "s3")]
    await asyncio.sleep(0.01)
    assert [[e.request.affinity for e in engine.log] for engine in (a, b)] == [["s1", "s1", "s1"], ["s2", "s3"]]
    a.hang(False), b.hang(False)
    await asyncio.gather(*running)
    with pytest.raises(RequestError, match="affinity"):
        await fleet.generate(request(""))
    assert not told.events and fleet.metrics() == {}


async def test_idle_engines_get_new_sessions_in_turn():
    engines, fleet, _ = fleet_of(3)
    for number in range(9):
        await fleet.generate(request(f"s{number}"))
    assert [len(engine.log) for engine in engines] == [3, 3, 3]


async def test_a_dead_engine_moves_its_sessions_and_says_what_that_lost():
    (a, _b), fleet, told = fleet_of()
    first = {key: await fleet.generate(request(key)) for key in ("s1", "s2", "s3")}
    assert [r.engine for r in first.values()] == ["a", "b", "a"]
    a.hang()
    waiting = asyncio.create_task(fleet.generate(request("s1", 40, turn=1)))
    await asyncio.sleep(0.01)
    a.die()
    assert (await waiting).engine == "b"  # what was in flight is asked again
    seen = 3 + len(first["s1"].tokens)
    assert [name for name, _ in told.events] == ["engine_lost", "session_moved"]
    assert told.events[0][1]["left"] == 1 and "died" in told.events[0][1]["why"]
    assert told.events[1][1] == {"session": "s1", "engine": "a", "to": "b", "lost_tokens": seen}
    assert (await fleet.generate(request("s3", 2, turn=1))).engine == "b"
    assert (await fleet.generate(request("s2", 9, turn=1))).engine == "b"
    assert fleet.metrics() == {"engine/lost": 1, "engine/moved_sessions": 2, "engine/lost_prefix_tokens": seen + 2}
    assert fleet.metrics() == {}


async def test_what_is_asked_again_elsewhere_is_the_same():
    (a, _), fleet, _ = fleet_of()
    a.fail_next(WorkerDied("killed"), after=1)
    moved = await fleet.generate(request("s1"))
    expected = await ScriptedEngine().generate(request("s1"))
    assert moved.engine == "b" and moved.tokens.tolist() == expected.tokens.tolist()


async def test_the_death_of_the_last_engine_is_an_error():
    (a, b), fleet, told = fleet_of()
    a.die(), b.die()
    for _ in range(2):
        with pytest.raises(WorkerDied):
            await fleet.generate(request("s1"))
    assert [facts["left"] for name, facts in told.events if name == "engine_lost"] == [1, 0]
