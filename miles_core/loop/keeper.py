"""The keeper: the one owner of the lives of a fleet's engines.

It starts them, publishes weights to them, looks after their health, and starts one that died again: in the background,
under its old name, at the same place. An engine joins the fleet only once it reports the current weight version.

Loading and publishing exclude each other: an engine that comes up loads the version that is current, from the trainer
while the trainer still holds exactly that one; when it has moved on, the engine takes part in the next publication.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from collections.abc import Sequence as Several
from typing import Any

from miles_core.contracts.engine import PauseMode
from miles_core.contracts.lifecycle import Clock, EventSink, RealClock
from miles_core.contracts.observing import Handle
from miles_core.errors import PublicationError, WorkerDied
from miles_core.loop.care import Care as Care
from miles_core.loop.care import Member, death_of, end
from miles_core.loop.care import Weights as Weights
from miles_core.loop.health import LOOK_SECONDS as LOOK_SECONDS
from miles_core.loop.health import Watch
from miles_core.rollout.fleet import Endurance, Fleet, NamedEngine
from miles_core.runtime.bounded import BoundedHandle, in_time
from miles_core.runtime.clients import RemoteEngine
from miles_core.runtime.life import IllegalTransition, Life, State, delay
from miles_core.weights.publication import publish


class Keeper:
    """See the module's text. `start` begins the process of the engine of that name. `events` is told what the fleet
    tells, `engine_restarting` (engine, restart, of, after), `engine_ready` (engine, version, seconds),
    `engine_unhealthy` (engine, why) and `engine_given_up` (engine, why)."""

    def __init__(
        self,
        names: Several[str],
        start: Callable[[str], Awaitable[Handle]],
        events: EventSink,
        care: Care | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._members = [Member(name) for name in names]
        self._start = start
        self._events = events
        self._care = care or Care()
        self._clock = clock or RealClock()
        self._loading = asyncio.Condition()
        self._weights: Weights | None = None
        self._version = 0
        self._held = False  # the source of the weights holds exactly the current version
        self._watching: asyncio.Task[None] | None = None
        self._closing = False
        self._restarts: Counter[str] = Counter()
        endurance = Endurance(self._care.wait_seconds, self._care.request_deaths)
        self.fleet = Fleet((), events, owner=self, endurance=endurance)

    @property
    def engines(self) -> tuple[RemoteEngine, ...]:
        """Those whose processes live."""
        return tuple(m.engine for m in self._members if m.engine is not None and m.engine.handle.alive)

    @property
    def lives(self) -> dict[str, Life]:
        return {member.name: member.life for member in self._members}

    @property
    def wanting(self) -> bool:
        """Whether a publication is due, whatever the schedule says: an engine is up and waits for it, or none serves
        and one that comes up would wait."""
        nobody = not self.fleet.serving and bool(self.coming())
        return not self._held and (nobody or self._in_wait)

    @property
    def _in_wait(self) -> bool:
        """Whether an engine is up and waits for the next publication."""
        return not self._held and any(m.rising and m.life.state is State.LOADING for m in self._members)

    @property
    def spent(self) -> bool:
        """Whether no engine is left and none will be."""
        return not self.fleet.serving and not self.coming()

    def coming(self) -> str:
        """`rollout.fleet.Owner`: those that may join yet, and what they do."""
        return ", ".join(f"{m.name} ({m.doing})" for m in self._members if m.coming)

    def died(self, engine: NamedEngine, error: WorkerDied) -> None:
        """`rollout.fleet.Owner`: an engine died under a request."""
        for member in self._members:
            if member.engine is engine:
                self._bury(member, error, told=True)

    async def start(self) -> None:
        """Start all of them, side by side. Raises what starting the first one that cannot be started raises; whoever
        closes the runtime ends the others."""
        await asyncio.gather(*self.starts())

    def starts(self) -> list[Coroutine[Any, Any, None]]:
        """What `start` does, one for each engine: workers that start in one tick may be placed together."""
        return [self._first(member) for member in self._members]

    async def publish(self, weights: Weights, version: int, pause: PauseMode = PauseMode.RETRACT) -> None:
        """Every engine that lives runs `version` when this returns, and takes requests. Engines that die meanwhile are
        left out; they load it when they are up again.

        Raises PublicationError when it fails for another reason, WorkerDied when the weights' own process died or no
        engine is left and none comes.
        """
        async with self._loading:
            self._weights, self._version = weights, version
            self._held = True
            self._watching = self._watching or self._task(self._watch().run(), "engines' keeper")
            while taking := [m for m in self._members if m.engine is not None]:
                if await self._publish_to(taking, weights, version, pause):
                    break
            self._loading.notify_all()
        if self.spent:
            raise WorkerDied(f"no engine is left: {'; '.join(m.life.why for m in self._members)}")

    async def weights_move(self) -> None:
        """The trainer is about to change the weights. An engine that loads them now is waited for; those that come
        later wait for the next publication."""
        async with self._loading:
            self._held = False

    async def starved(self) -> None:
        """Return when no engine serves, and one waits for the next publication: waiting for requests is in vain."""
        while self.fleet.serving or not self._in_wait:
            await self._clock.sleep(LOOK_SECONDS)

    def metrics(self) -> dict[str, float]:
        """What was lost, moved and started again since the last call; nothing when nothing was."""
        counted, self._restarts = self._restarts, Counter()
        return {**self.fleet.metrics(), **{f"engine/{name}": float(count) for name, count in counted.items()}}

    async def close(self) -> None:
        """End all of them. What is being started is cancelled. Idempotent."""
        self._closing = True
        tasks = [self._watching, *(m.task for m in self._members), *(m.checking for m in self._members)]
        running = [task for task in tasks if task is not None]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        engines = [member.engine for member in self._members if member.engine is not None]
        for member in self._members:
            if member.life.state not in (State.DRAINING, State.DEAD):
                member.life = member.life.drain("the run ends")
        await asyncio.gather(*(engine.handle.close() for engine in engines))

    async def _first(self, member: Member) -> None:
        member.engine = self._engine(await self._begin(member.name))

    def _begin(self, name: str) -> Awaitable[Handle]:
        return in_time(self._start(name), name, self._care.wait_seconds)

    def _engine(self, handle: Handle) -> RemoteEngine:
        """Generation takes as long as it takes: that the engine is well is seen by its health."""
        seconds, setting = self._care.wait_seconds, "faults.wait_seconds"
        return RemoteEngine(BoundedHandle(handle, seconds, setting, ("generate",), self._events))

    async def _publish_to(self, taking: list[Member], weights: Weights, version: int, pause: PauseMode) -> bool:
        """One try. False when engines died of it: they are left out of the next one."""
        engines = tuple(member.engine for member in taking if member.engine is not None)
        for member in taking:
            starting = member.life.state is State.STARTING
            member.life = member.life.ready(version) if starting else member.life.publish(version)
        try:
            manifest = await weights.manifest(version)
            await publish(manifest, engines, lambda: weights.transfer(version, engines), pause)
        except (PublicationError, WorkerDied):
            alive = [m.engine is e and e.handle.alive for m, e in zip(taking, engines, strict=True)]
            for member, engine, lives in zip(taking, engines, alive, strict=True):
                if member.engine is engine and not lives:
                    self._bury(member, await death_of(engine))
            if all(alive) or weights.lost is not None:
                raise
            return False
        for member, engine in zip(taking, engines, strict=True):
            if member.engine is engine:  # it may have died since it reported
                self._serve(member, engine)
        return True

    def _serve(self, member: Member, engine: RemoteEngine) -> None:
        """It reported the current version."""
        member.life = member.life.loaded(self._version)
        member.serving_since = member.checked = self._clock.now()
        self.fleet.join(engine)

    def _bury(self, member: Member, error: WorkerDied, *, told: bool = False) -> None:
        """The process of its engine is gone: note it, and see that it is started again. `told`: the fleet knows."""
        engine, member.engine = member.engine, None
        if engine is None or self._closing:
            return
        member.life = member.life.die(str(error))
        if not told:
            self.fleet.leave(engine, error)
        self._raise_again(member, engine)

    def _put_down(self, member: Member, engine: RemoteEngine, why: str) -> None:
        """It lives and is of no use: it gets no more requests, and its process is ended."""
        self._events.emit("engine_unhealthy", engine=member.name, why=why)
        member.engine, member.life = None, member.life.drain(why)
        self.fleet.leave(engine, WorkerDied(f"engine {member.name!r} is not well: {why}"))
        self._raise_again(member, engine)

    def _raise_again(self, member: Member, engine: RemoteEngine) -> None:
        """Unless that is what is going on: whoever does it sees that the engine is gone."""
        if not member.rising:
            member.task = self._task(self._raise(member, engine), f"restart of {member.name}")

    async def _raise(self, member: Member, engine: RemoteEngine | None) -> None:
        """Start it again and again, until it serves or its restarts are spent."""
        care = self._care
        while True:
            if engine is not None:
                await end(engine, member.life.why)
            if member.life.state is State.DRAINING:
                member.life = member.life.die(member.life.why)
            if not member.life.may_restart(care.restarts):
                self._give_up(member)
                return
            after = delay(member.life.restarts, care.restart_delay)
            member.life = member.life.restart(care.restarts)
            self._restarts["restarts"] += 1
            number = member.life.restarts
            self._events.emit("engine_restarting", engine=member.name, restart=number, of=care.restarts, after=after)
            await self._clock.sleep(after)
            engine, began = None, self._clock.now()
            try:
                engine = self._engine(await self._begin(member.name))
                member.engine, member.life = engine, member.life.ready(self._version)
                await self._bring(member, engine)
            except IllegalTransition:
                raise
            except Exception as error:  # whatever it is: the engine did not come up
                if self._fell(member, error):
                    continue
                if engine is not None:
                    await end(engine, "there are no weights for it")
                return
            seconds = self._clock.now() - began
            self._events.emit("engine_ready", engine=member.name, version=self._version, seconds=seconds)
            return

    async def _bring(self, member: Member, engine: RemoteEngine) -> None:
        """Load the current version, or take part in the publication of the next. Raises what keeps it from that."""
        async with self._loading:
            if not self._held:
                whom = f"the next publication: the trainer has moved on from version {self._version}"
                self._events.emit("waiting", who=f"engine {member.name}", whom=whom)
            while member.engine is engine and member.life.state is State.LOADING and not self._held:
                await self._loading.wait()
            if member.engine is not engine:
                raise WorkerDied(member.life.why)
            if member.life.state is State.LOADING:
                await self._load(member, engine)

    async def _load(self, member: Member, engine: RemoteEngine) -> None:
        weights, version = self._weights, self._version
        if weights is None:
            raise AssertionError("an engine is started again only after a publication")
        member.life = member.life.publish(version)
        await publish(await weights.manifest(version), (engine,), lambda: weights.transfer(version, (engine,)))
        self._serve(member, engine)

    def _fell(self, member: Member, error: Exception) -> bool:
        """It did not come up. Whether it may be tried again: not when the weights themselves are gone."""
        member.engine = None
        if member.life.state is not State.DEAD:
            why = str(error) or type(error).__name__
            death = WorkerDied(f"engine {member.name!r} could not be started again: {why}")
            member.life = member.life.die(str(death))
            self.fleet.lost(member.name, death)
        lost = self._weights.lost if self._weights is not None else None
        if lost is not None:
            self.fleet.end(lost)
        return lost is None

    def _give_up(self, member: Member) -> None:
        member.given_up = True
        self._events.emit("engine_given_up", engine=member.name, why=member.life.why, left=len(self.fleet.serving))
        self.fleet.look_again()

    def _watch(self) -> Watch:
        seconds = self._care.health_seconds
        return Watch(self._members, self._clock, seconds, self._bury, self._put_down, self._task)

    def _task(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        """A task whose failure is heard by whoever asks for tokens: it is a fault of this module."""
        task = asyncio.create_task(work, name=name)
        task.add_done_callback(self._heard)
        return task

    def _heard(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.fleet.end(error)
