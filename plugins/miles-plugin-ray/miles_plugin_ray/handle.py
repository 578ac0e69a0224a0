"""The driver's side of one actor. See `miles_core.Handle`."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from miles_core import BuildContext, Call, Cancel, ComponentRef, PendingCalls, RunError, WorkerDied
from miles_plugin_ray.cargo import Cargo, pack, unpack
from miles_plugin_ray.death import how_it_ended, words_of
from miles_plugin_ray.process_end import see_end
from miles_plugin_ray.workplace import Arrival, Instructions


class RayHandle:
    """One component in an actor. `left` is called once when its place is free again."""

    def __init__(self, name: str, actor: Any, log: Path, grace: float, left: Callable[[], None]) -> None:
        self._name = name
        self._actor = actor
        self._log = log
        self._grace = grace
        self._left = left
        self._calls = PendingCalls(name, self._send)
        self._said = 0
        self._closing: asyncio.Task[None] | None = None
        self._reading: asyncio.Task[None] | None = None
        self._arrival: Arrival | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def alive(self) -> bool:
        return self._arrival is not None and self._closing is None and self._calls.death is None

    @property
    def pid(self) -> int:
        """On its node. Raises RunError before it is there."""
        if self._arrival is None:
            raise RunError(f"worker {self._name!r} has not started")
        return self._arrival.pid

    @property
    def actor_id(self) -> str:
        """Ray's; "" before it is there."""
        return self._arrival.actor if self._arrival else ""

    async def open(self, told: Instructions, ref: ComponentRef, context: BuildContext, seconds: float) -> None:
        """Wait for the process, send what to build, and wait until it is built. Raises what building raised; then the
        process is ended, and its place is free."""
        try:
            self._arrival = await self._arrive(told, seconds)
            self._reading = asyncio.create_task(self._read(), name=f"replies of {self._name}")
            self._tell(pack([ref, context]))
            await self._calls.built()
        except BaseException:
            self.kill()
            if self._reading is None:
                self._left()
            raise

    async def _arrive(self, told: Instructions, seconds: float) -> Arrival:
        try:
            arrival: Arrival = await asyncio.wait_for(self._actor.prepare.remote(told), seconds)
        except TimeoutError as error:
            raise RunError(
                f"the process of worker {self._name!r} did not start within {seconds:g} s",
                where="runtime.start_seconds",
                mend="raise it, or look what keeps the machine busy",
            ) from error
        except RayError as error:
            raise RunError(
                f"the process of worker {self._name!r} could not start: {how_it_ended(error)}",
                mend="every machine of the cluster needs the same miles packages: pip install miles-plugin-ray there",
            ) from error
        return arrival

    async def call(self, method: str, *args: Any) -> Any:
        return await self._calls.call(method, args)

    async def close(self) -> None:
        """Let the component close, then end the process; one that takes too long is killed. Idempotent."""
        if self._closing is None:
            self._calls.close()
            self._closing = asyncio.create_task(self._end(), name=f"end of {self._name}")
        await asyncio.shield(self._closing)

    def abandon(self) -> None:
        """Ask nothing more of a cluster that is no more."""
        self._calls.close()
        self._calls.bury(self._closed())
        if self._reading is not None:
            self._reading.cancel()

    def kill(self) -> None:
        """End the process at once, without asking."""
        ray.kill(self._actor)

    async def _end(self) -> None:
        if self._arrival is not None and self._calls.death is None:
            with contextlib.suppress(TimeoutError, RayError):  # it hangs or is dead: then it is not asked
                await asyncio.wait_for(self._actor.close.remote(), self._grace)
        self.kill()
        if self._reading is not None:
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._reading, self._grace)  # ends when Ray knows that the process is gone
        self._calls.bury(self._closed())
        if self._arrival is not None and self._arrival.node == ray.get_runtime_context().get_node_id():
            await see_end(self._arrival.pid, self._grace)  # Ray calls it dead a moment before it is

    def _closed(self) -> WorkerDied:
        return WorkerDied(f"worker {self._name!r} was closed")

    def _send(self, messages: list[Call | Cancel]) -> None:
        self._tell(pack(messages))

    def _tell(self, cargo: Cargo) -> None:
        self._actor.take.remote(self._said, cargo)
        self._said += 1

    async def _read(self) -> None:
        try:
            async for reference in self._actor.replies.remote():
                self._calls.answer(unpack(await reference))
        except RayError as error:
            await self._bury(how_it_ended(error))
        except Exception as error:  # a reply that cannot be read here: whose it was is not known
            self.kill()
            await self._bury(f"it answered what cannot be read here: {type(error).__name__}: {error}")
        finally:
            self._left()

    async def _bury(self, how: str) -> None:
        if self._closing is not None:
            self._calls.bury(self._closed())
            return
        node = self._arrival.node if self._arrival else ""
        words = await asyncio.to_thread(words_of, self._log, node)
        self._calls.bury(
            WorkerDied(
                f"worker {self._name!r} died while it was needed: {how}{words}",
                where=str(self._log),
                mend="its log has the whole story; `miles resume` continues from the last checkpoint",
            )
        )
