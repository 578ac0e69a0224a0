"""The keeper of a fleet's engines: deaths and publications in every order, health, restarts, and how each ends."""

from __future__ import annotations

import asyncio
from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from miles_core import GenerateRequest, NoiseKey, PublicationError, Sampling, WorkerDied
from miles_core.contracts.lifecycle import Health
from miles_core.contracts.transport import Delivery, Form, UpdateManifest
from miles_core.loop.keeper import LOOK_SECONDS, Care, Keeper
from miles_core.runtime.life import State
from miles_core.testing import ManualClock, ScriptedEngine

CARE = Care(restarts=2, restart_delay=1.0, health_seconds=8.0, wait_seconds=5.0, request_deaths=9)


class Told:
    def __init__(self) -> None:
        self.events: list[tuple[str, dict]] = []

    def emit(self, name, /, **facts) -> None:
        self.events.append((name, facts))

    def of(self, name: str) -> list[dict]:
        return [facts for each, facts in self.events if each == name]


class FakeHandle:
    """A process that hosts a scripted engine. `dies_in` and `stalls_in` are methods that it does not survive."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.engine = ScriptedEngine(name=name, version=None)
        self.alive = True
        self.closed = False
        self.sick = ""
        self.lies = False
        self.dies_in: set[str] = set()
        self.stalls_in: set[str] = set()
        self.asked: Counter[str] = Counter()
        self._gone = asyncio.Event()

    async def call(self, method, *args):
        self.asked[method] += 1
        await asyncio.sleep(0)
        if method in self.dies_in:
            self.kill()
        if method in self.stalls_in:
            await self._gone.wait()
        if not self.alive:
            raise WorkerDied(f"worker {self.name!r} was killed")
        if method == "health":
            return Health(not self.sick, self.sick)
        if method == "version" and self.lies:
            return 7
        found = await getattr(self.engine, method)(*args)
        if not self.alive:
            raise WorkerDied(f"worker {self.name!r} was killed")
        return found

    def kill(self) -> None:
        self.alive = False
        self._gone.set()
        self.engine.die()

    async def close(self) -> None:
        self.closed = True
        self.kill()


class FakeWeights:
    """A trainer with one tensor; `gate` holds a transfer up. `wrong`: versions sent while it held another one."""

    def __init__(self) -> None:
        self.lost: WorkerDied | None = None
        self.holds = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.sent: list[tuple[int, tuple[str, ...]]] = []
        self.wrong: list[tuple[int, int]] = []

    async def manifest(self, version):
        return UpdateManifest(version)

    async def transfer(self, version, engines):
        await self.gate.wait()
        if self.lost is not None:
            raise self.lost
        if self.holds != version:
            self.wrong.append((version, self.holds))
        self.sent.append((version, tuple(engine.name for engine in engines)))
        ended = [engine.load(Delivery(Form.TENSORS, "fake")) for engine in engines]
        for each in await asyncio.gather(*ended, return_exceptions=True):
            if isinstance(each, BaseException):
                raise each


class Bench:
    """A keeper over fake processes, with a clock that stands still."""

    def __init__(self, count: int = 2, care: Care = CARE) -> None:
        self.told, self.clock, self.weights = Told(), ManualClock(), FakeWeights()
        self.started: list[FakeHandle] = []
        self.fails = 0  # starts that fail from now on
        self.next_dies_in: set[str] = set()
        names = [f"engine-{number}" for number in range(count)]
        self.keeper = Keeper(names, self.begin, self.told, care, self.clock)

    async def begin(self, name: str) -> FakeHandle:
        await asyncio.sleep(0)
        if self.fails:
            self.fails -= 1
            raise RuntimeError("no room")
        handle = FakeHandle(name)
        handle.dies_in, self.next_dies_in = self.next_dies_in, set()
        self.started.append(handle)
        return handle

    async def publish(self, version: int) -> None:
        self.weights.holds = version
        await self.keeper.publish(self.weights, version)

    async def step(self) -> None:
        """The trainer changes its weights."""
        await self.keeper.weights_move()
        self.weights.holds = -1

    def handle(self, name: str = "engine-0") -> FakeHandle:
        return [handle for handle in self.started if handle.name == name][-1]

    async def advance(self, seconds: float) -> None:
        await self.clock.advance(seconds)

    async def ask(self, session: str = "s"):
        prompt, sampling = np.array([65], np.int32), Sampling(max_new_tokens=3)
        request = GenerateRequest(session, prompt, sampling, NoiseKey(1, "t", session, 0, 0, 0), session)
        return await self.keeper.fleet.generate(request)

    def versions(self) -> dict[str, int | None]:
        return {name: life.version for name, life in self.keeper.lives.items() if life.state is State.SERVING}


@pytest.fixture
async def bench():
    bench = Bench()
    await bench.keeper.start()
    await bench.publish(1)
    yield bench
    await bench.keeper.close()
    assert not bench.weights.wrong
    assert all(not handle.alive for handle in bench.started)


async def test_an_idle_engine_that_dies_is_started_again_and_loads_from_the_trainer(bench):
    bench.handle("engine-1").kill()
    await bench.advance(LOOK_SECONDS)
    assert bench.keeper.fleet.serving == ("engine-0",)
    (lost,) = bench.told.of("engine_lost")
    assert (lost["engine"], lost["left"]) == ("engine-1", 1)
    await bench.advance(0.9)
    assert len(bench.started) == 2  # it waits a moment first
    await bench.advance(0.2)
    assert bench.versions() == {"engine-0": 1, "engine-1": 1}
    assert bench.weights.sent == [(1, ("engine-0", "engine-1")), (1, ("engine-1",))]
    assert bench.told.of("engine_restarting")[0] == {"engine": "engine-1", "restart": 1, "of": 2, "after": 1.0}
    assert bench.told.of("engine_ready")[0]["version"] == 1
    assert bench.keeper.metrics() == {"engine/lost": 1, "engine/restarts": 1}
    assert bench.keeper.metrics() == {}


async def test_requests_wait_for_the_last_engine_and_say_for_whom(bench):
    bench.handle("engine-0").kill(), bench.handle("engine-1").kill()
    asking = [asyncio.create_task(bench.ask(f"s{n}")) for n in range(5)]
    await bench.advance(0.5)
    assert not any(task.done() for task in asking)
    (waiting,) = bench.told.of("waiting")
    assert waiting["whom"] == "engine-0 (to be started again), engine-1 (to be started again)"
    assert waiting["at_most"] == CARE.wait_seconds
    await bench.advance(1.0)
    assert {result.spans[0].version for result in await asyncio.gather(*asking)} == {1}


async def test_a_wait_without_end_is_an_error_that_says_who_waited_for_whom():
    bench = Bench(1, Care(restart_delay=1.0, wait_seconds=0.05))
    await bench.keeper.start()
    await bench.publish(1)
    bench.handle().kill()
    with pytest.raises(WorkerDied, match=r"request 's' waited 0.05 s for an engine: engine-0 \(starting\)"):
        await bench.ask()
    await bench.keeper.close()


async def test_when_restarts_are_spent_the_fleet_goes_on_with_what_is_left(bench):
    for wait in (1.5, 2.5, 4.5):
        bench.handle("engine-1").kill()
        await bench.advance(wait)
    (given_up,) = bench.told.of("engine_given_up")
    assert (given_up["engine"], given_up["left"]) == ("engine-1", 1)
    assert (await bench.ask()).engine == "engine-0" and not bench.keeper.spent
    bench.handle("engine-0").kill()
    bench.fails = 9
    with pytest.raises(WorkerDied, match="engine-0"):
        await asyncio.gather(bench.ask(), bench.advance(20))
    assert bench.keeper.spent and [facts["left"] for facts in bench.told.of("engine_given_up")] == [1, 0]


async def test_an_engine_that_comes_up_while_the_trainer_works_takes_part_in_the_publication(bench):
    await bench.step()
    bench.handle("engine-1").kill()
    await bench.advance(2)
    assert bench.versions() == {"engine-0": 1} and bench.keeper.wanting
    (waiting,) = bench.told.of("waiting")
    assert waiting["who"] == "engine engine-1" and "next publication" in waiting["whom"]
    await bench.publish(2)
    await bench.advance(0)
    assert bench.versions() == {"engine-0": 2, "engine-1": 2} and not bench.keeper.wanting
    assert bench.weights.sent[-1] == (2, ("engine-0", "engine-1")) and len(bench.weights.sent) == 2


async def test_when_nobody_serves_a_publication_is_due_before_an_engine_is_up(bench):
    await bench.step()
    assert not bench.keeper.wanting
    bench.handle("engine-0").kill(), bench.handle("engine-1").kill()
    await bench.advance(LOOK_SECONDS)
    assert bench.keeper.wanting and len(bench.started) == 2
    await bench.publish(2)
    assert not bench.keeper.wanting and bench.versions() == {}
    await bench.advance(2)
    assert bench.versions() == {"engine-0": 2, "engine-1": 2}


async def test_a_publication_and_a_step_wait_for_an_engine_that_loads(bench):
    bench.handle("engine-1").kill()
    bench.weights.gate.clear()
    await bench.advance(2)
    stepping = asyncio.create_task(bench.step())
    publishing = asyncio.create_task(bench.publish(2))
    await bench.advance(1)
    assert not stepping.done() and bench.weights.holds == 2
    bench.weights.holds = 1  # the fake trainer still holds what the engine loads
    bench.weights.gate.set()
    await stepping
    bench.weights.holds = 2
    await publishing
    assert bench.versions() == {"engine-0": 2, "engine-1": 2}


@pytest.mark.parametrize("method", ["pause", "begin_update", "load", "finish_update", "version", "resume"])
async def test_a_death_during_a_publication_leaves_the_others_with_the_new_version(bench, method):
    bench.handle("engine-1").dies_in = {method}
    await bench.publish(2)
    assert bench.versions() == {"engine-0": 2}
    assert (await bench.ask()).spans[0].version == 2
    await bench.advance(2)
    assert bench.versions() == {"engine-0": 2, "engine-1": 2}
    assert len(bench.told.of("engine_lost")) == 1


@pytest.mark.parametrize("method", ["pause", "load", "version", "resume"])
async def test_a_death_while_loading_is_one_more_restart(bench, method):
    bench.next_dies_in = {method}
    bench.handle("engine-1").kill()
    await bench.advance(1.5)
    assert bench.versions() == {"engine-0": 1}
    await bench.advance(2.5)
    assert bench.versions() == {"engine-0": 1, "engine-1": 1}
    assert bench.keeper.metrics() == {"engine/lost": 2, "engine/restarts": 2}


@pytest.mark.parametrize("method", ["pause", "load", "resume"])
async def test_an_engine_that_hangs_in_a_publication_is_killed(method):
    bench = Bench(care=Care(restarts=0, wait_seconds=0.1))
    await bench.keeper.start()
    await bench.publish(1)
    bench.handle("engine-1").stalls_in = {method}
    await bench.publish(2)
    assert bench.versions() == {"engine-0": 2} and not bench.handle("engine-1").alive
    assert f"did not answer `{method}` for 0.1 s" in bench.told.of("engine_lost")[0]["why"]
    await bench.keeper.close()


async def test_a_publication_that_fails_for_another_reason_is_an_error(bench):
    bench.handle("engine-1").lies = True
    with pytest.raises(PublicationError, match="engine-1 reports 7"):
        await bench.publish(2)


async def test_a_dead_trainer_is_everybodys_error(bench):
    bench.handle("engine-0").kill(), bench.handle("engine-1").kill()
    asking = asyncio.create_task(bench.ask())
    bench.weights.lost = WorkerDied("the trainer died")
    await bench.advance(2)
    with pytest.raises(WorkerDied, match="the trainer died"):
        await asking


async def test_a_hanging_engine_is_ended_and_started_again():
    bench = Bench(care=Care(health_seconds=0.2, restart_delay=1.0))
    await bench.keeper.start()
    await bench.publish(1)
    sick = bench.handle("engine-1")
    sick.stalls_in = {"health"}
    sick.engine.hang()
    asking = [asyncio.create_task(bench.ask(f"s{n}")) for n in range(2)]
    await bench.advance(LOOK_SECONDS)
    await asyncio.sleep(0.3)
    await bench.advance(2)
    assert {(await task).spans[0].version for task in asking} == {1}
    (unhealthy,) = bench.told.of("engine_unhealthy")
    assert unhealthy["engine"] == "engine-1" and "did not answer `health` for 0.2 s" in unhealthy["why"]
    assert not sick.alive and bench.versions() == {"engine-0": 1, "engine-1": 1}
    assert len(bench.told.of("engine_lost")) == 1
    await bench.keeper.close()


async def test_an_engine_that_says_it_is_not_well_is_believed(bench):
    bench.handle("engine-0").sick = "its device fell off the bus"
    await bench.advance(CARE.health_seconds)
    assert "fell off the bus" in bench.told.of("engine_unhealthy")[0]["why"]
    assert bench.versions() == {"engine-0": 1, "engine-1": 1} and len(bench.started) == 3


async def test_ending_in_the_middle_of_a_restart_leaves_nothing(bench):
    bench.handle("engine-1").kill()
    await bench.advance(0.5)
    await bench.keeper.close()
    await bench.advance(9)
    assert len(bench.started) == 2 and all(handle.closed for handle in bench.started)
    assert {life.state for life in bench.keeper.lives.values()} <= {State.DRAINING, State.DEAD, State.STARTING}


async def test_a_request_that_kills_engines_is_aborted():
    bench = Bench(2, Care(restarts=5, restart_delay=0.1, request_deaths=3))
    await bench.keeper.start()
    await bench.publish(1)
    for handle in bench.started:
        handle.dies_in = {"generate"}
    bench.next_dies_in = {"generate"}
    asking = asyncio.create_task(bench.ask())
    await bench.advance(1)
    result = await asking
    assert result.finish == "abort" and len(result.tokens) == 0
    assert bench.told.of("request_aborted") == [{"request": "s", "deaths": 3}]
    assert bench.keeper.metrics()["engine/aborted_requests"] == 1
    await bench.keeper.close()


ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("kill"), st.integers(0, 1)),
        st.tuples(st.just("dies_in"), st.sampled_from(["pause", "load", "finish_update", "version", "resume"])),
        st.tuples(st.just("sick"), st.integers(0, 1)),
        st.tuples(st.just("ask"), st.integers(0, 3)),
        st.tuples(st.sampled_from(["step", "publish"]), st.just(0)),
        st.tuples(st.just("advance"), st.sampled_from([0.0, LOOK_SECONDS, 1.5, 5.0])),
    ),
    max_size=25,
)


@given(ACTIONS)
@settings(max_examples=60, deadline=None)
def test_no_order_of_events_lets_an_engine_answer_with_another_version(actions):
    asyncio.run(_story(actions))


async def _story(actions) -> None:
    bench = Bench(care=Care(restarts=50, restart_delay=0.5, health_seconds=4.0, request_deaths=99))
    await bench.keeper.start()
    await bench.publish(1)
    version, asked = 1, []
    for action, what in actions:
        if action == "kill":
            bench.handle(f"engine-{what}").kill()
        elif action == "dies_in":
            bench.handle("engine-0").dies_in = {what}
        elif action == "sick":
            bench.handle(f"engine-{what}").sick = "sick"
        elif action == "ask":
            asked.append((version, asyncio.create_task(bench.ask(f"s{len(asked)}"))))
        elif action == "step":
            await bench.step()
        elif action == "publish":
            version += 1
            await bench.publish(version)
        else:
            await bench.advance(what)
        assert set(bench.versions().values()) <= {version}
        serving = [h for h in bench.keeper.fleet.serving if bench.keeper.lives[h].state is not State.SERVING]
        assert not serving
    await bench.step()
    version += 1
    await bench.advance(90)
    await bench.publish(version)
    await bench.advance(90)
    assert bench.versions() == {"engine-0": version, "engine-1": version}
    for since, task in asked:
        result = await asyncio.wait_for(task, 5)
        assert all(since <= span.version <= version for span in result.spans)
    assert not bench.weights.wrong
    assert not [task for task in asyncio.all_tasks() if task.done() and not task.cancelled() and task.exception()]
    await bench.keeper.close()
