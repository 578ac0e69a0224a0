"""The `ray` runtime: each component in an actor, behind the same handle as a child process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ray

from miles_core import BuildContext, ComponentRef, RunError, worker_path
from miles_plugin_ray.connection import Connection, bounded
from miles_plugin_ray.handle import RayHandle
from miles_plugin_ray.options import RayOptions
from miles_plugin_ray.own_cluster import Size
from miles_plugin_ray.placement import Place, Places, free_groups_of, resources_of
from miles_plugin_ray.workplace import Instructions, Workplace, told

ONE_MACHINE = "one-machine"
DEFAULTS = {"PYDANTIC_DISABLE_PLUGINS": "1", "OMP_WAIT_POLICY": "PASSIVE"}
THREADS = "OMP_NUM_THREADS"


@dataclass(frozen=True, slots=True)
class _Start:
    """A start that waits for its place."""

    ref: ComponentRef
    context: BuildContext
    place: asyncio.Future[Place]


class RayRuntime:
    """Starts actors and ends them all. What starts in one tick of the event loop is placed together."""

    def __init__(self, options: RayOptions, context: BuildContext) -> None:
        self._options = options
        self._places = Places(options.placement, options.start_seconds)
        self._handles: list[RayHandle] = []
        self._starting: list[_Start] = []
        self._placing: set[asyncio.Task[None]] = set()
        self._freeing: set[asyncio.Task[None]] = set()
        self._host = told()
        self._connection: Connection | None = None
        self._connecting = asyncio.Lock()
        self._scratch: tempfile.TemporaryDirectory[str] | None = None
        self._logs = context.folder / "logs" if context.folder else None

    async def start(self, ref: ComponentRef, context: BuildContext) -> RayHandle:
        place = await self._place(ref, context)
        actor = ray.remote(Workplace).options(
            name=None,
            max_restarts=0,  # who starts it again is the owner of its life, not Ray
            max_concurrency=4,
            runtime_env={"env_vars": dict(self._environment())},
            **place.actor_options(),
        )
        log = self._log_of(context.name)

        def left() -> None:
            self._places.give_back(place)
            if ref.kind == "driver" and self._lives:
                self._free(handle.actor_id)

        handle = RayHandle(context.name, actor.remote(), log, self._options.grace_seconds, left)
        self._handles.append(handle)
        folder = os.getcwd()  # noqa: PTH109 - as text, for another machine
        instructions = Instructions(worker_path(), folder, log, self._own, self._environment())
        await handle.open(instructions, ref, context, self._options.start_seconds)
        return handle

    @property
    def _own(self) -> bool:
        """Whether the cluster is the run's own: of this process, or of the one whose actor it is."""
        return self._connection is not None and (self._connection.own or (self._host is not None and self._host.own))

    @property
    def _lives(self) -> bool:
        return self._connection is not None and self._connection.lives

    async def close(self) -> None:
        for task in self._placing:
            task.cancel()
        await asyncio.gather(*self._placing, return_exceptions=True)
        lives = self._lives
        try:
            if lives:
                await asyncio.gather(*(handle.close() for handle in self._handles))
            else:
                for handle in self._handles:
                    handle.abandon()
            await asyncio.gather(*self._freeing, return_exceptions=True)
        finally:
            self._handles.clear()
            async with self._connecting:
                if self._connection is not None:
                    if lives:
                        self._places.close()
                    await asyncio.to_thread(self._connection.close)
                    self._connection = None
            if self._scratch is not None:
                self._scratch.cleanup()
                self._scratch = None

    def _free(self, actor: str) -> None:
        """What a driver had reserved for its own workers, which end with it."""
        work = asyncio.to_thread(bounded, lambda: free_groups_of(actor), self._options.grace_seconds)
        task = asyncio.create_task(work, name="freeing places")
        self._freeing.add(task)
        task.add_done_callback(self._freeing.discard)

    async def _place(self, ref: ComponentRef, context: BuildContext) -> Place:
        place: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
        if not self._starting:
            asyncio.get_running_loop().call_soon(self._begin_placing)
        self._starting.append(_Start(ref, context, place))
        return await place

    def _begin_placing(self) -> None:
        starts, self._starting = self._starting, []
        task = asyncio.create_task(self._place_all(starts), name="placement")
        self._placing.add(task)
        task.add_done_callback(self._placing.discard)

    async def _place_all(self, starts: Sequence[_Start]) -> None:
        wanted = [resources_of(start.ref, self._options) for start in starts]
        one = any(ONE_MACHINE in part.capabilities for start in starts for part in start.context.parts.values())
        try:
            await self._connect()
            await asyncio.gather(*self._freeing)
            places = await self._places.reserve(wanted, one_machine=one, grows=not self._own)
        except BaseException as error:
            for start in starts:
                if not start.place.done():
                    start.place.set_exception(_as_cause(error))
            if not isinstance(error, Exception):
                raise
            return
        for start, place in zip(starts, places, strict=True):
            if start.place.done():  # nobody waits for it any more
                self._places.give_back(place)
            else:
                start.place.set_result(place)

    async def _connect(self) -> Connection:
        """Join or start the cluster, once."""
        async with self._connecting:
            if self._connection is None:
                options = self._options
                size = Size(options.cpus, options.object_store_mib)
                joining = asyncio.create_task(
                    asyncio.to_thread(Connection, options.address, size, options.start_seconds)
                )
                try:
                    self._connection = await asyncio.shield(joining)
                except asyncio.CancelledError:  # the thread cannot be stopped: wait, so that close finds it
                    with contextlib.suppress(Exception):
                        self._connection = await joining
                    raise
                _take_back_signals()
            return self._connection

    def _environment(self) -> Mapping[str, str]:
        """Variables that an actor has beside those of its machine. Ray gives each as many threads as it reserves CPUs;
        on one machine it gets what a child process would have, so that it computes the same bits."""
        given = os.environ if self._host is None else self._host.environment
        known = {name: given[name] for name in (*DEFAULTS, THREADS) if name in given}
        own = {THREADS: str(_processors())} if self._own else {}
        return {**DEFAULTS, **own, **known, **self._options.environment}

    def _log_of(self, name: str) -> Path:
        if self._logs is not None:
            return self._logs / f"{name}.log"
        self._scratch = self._scratch or tempfile.TemporaryDirectory(prefix="miles-logs-")
        return Path(self._scratch.name) / f"{name}.log"


def _as_cause(error: BaseException) -> BaseException:
    return error if isinstance(error, Exception) else RunError("the runtime was closed before the worker had a place")


def _take_back_signals() -> None:
    """Ray handles SIGTERM by printing a stack and dying; the driver's own way of ending is put back."""
    handler = signal.getsignal(signal.SIGTERM)
    if handler is not None and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)
        signal.siginterrupt(signal.SIGTERM, False)  # as an event loop wants it


def _processors() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
