"""A handle whose calls do not take for ever: a process that does not answer in time is killed, and says so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Container
from typing import Any, TypeVar

from miles_core.contracts.lifecycle import EventSink, NoEvents
from miles_core.contracts.observing import Handle
from miles_core.errors import WorkerDied

Result = TypeVar("Result")

log = logging.getLogger(__name__)

NOTICE_SECONDS = 60.0
"""A call that takes longer is told of."""


class BoundedHandle:
    """`handle`, whose process is killed when it does not answer a call within `seconds`. `setting` names what a person
    raises when that was too early; calls of the methods in `unbounded` may take as long as they like. `events` is told
    `waiting` (who, whom, at_most) when a call takes long, once for each."""

    def __init__(
        self,
        handle: Handle,
        seconds: float,
        setting: str,
        unbounded: Container[str] = (),
        events: EventSink | None = None,
    ) -> None:
        self._events = events or NoEvents()
        self._handle = handle
        self._seconds = seconds
        self._setting = setting
        self._unbounded = unbounded
        self._death: WorkerDied | None = None

    @property
    def name(self) -> str:
        return self._handle.name

    @property
    def alive(self) -> bool:
        return self._death is None and self._handle.alive

    @property
    def death(self) -> WorkerDied | None:
        """How it ended, once a call has met its end."""
        return self._death

    async def call(self, method: str, *args: Any) -> Any:
        if self._death is not None:
            raise self._death
        try:
            if method in self._unbounded:
                return await self._handle.call(method, *args)
            return await self._in_time(method, args)
        except WorkerDied as error:
            self._death = self._death or error
            raise

    async def close(self) -> None:
        await self._handle.close()

    async def end(self, why: str) -> None:
        """Kill it, whatever it does, and return when it is gone: whoever waits for it gets WorkerDied. One that
        cannot be killed (it lives in this process) and does not close in time is left."""
        self._death = self._death or WorkerDied(f"worker {self.name!r} was ended: {why}")
        kill(self._handle)
        try:
            async with asyncio.timeout(self._seconds):
                await self._handle.close()
        except TimeoutError:
            log.warning("worker %r does not close: it is left", self.name)

    async def _in_time(self, method: str, args: tuple[Any, ...]) -> Any:
        waiting = asyncio.timeout(self._seconds)
        alarm = asyncio.get_running_loop().call_later(NOTICE_SECONDS, self._tell, method)
        try:
            async with waiting:
                return await self._handle.call(method, *args)
        except TimeoutError:
            if not waiting.expired():
                raise  # the method's own
            kill(self._handle)
            raise WorkerDied(
                f"worker {self.name!r} did not answer `{method}` for {self._seconds:g} s, and was killed",
                mend=f"look into its log; when it was busy, raise `{self._setting}`",
            ) from None
        finally:
            alarm.cancel()

    def _tell(self, method: str) -> None:
        whom = f"{self.name} to answer `{method}` ({NOTICE_SECONDS:g} s until now)"
        self._events.emit("waiting", who="the driver", whom=whom, at_most=self._seconds)


async def in_time(starting: Awaitable[Result], name: str, seconds: float) -> Result:
    """What starting the worker `name` gives. Raises WorkerDied when that takes longer than `seconds`."""
    waiting = asyncio.timeout(seconds)
    try:
        async with waiting:
            return await starting
    except TimeoutError:
        if not waiting.expired():
            raise
        raise WorkerDied(
            f"worker {name!r} did not start within {seconds:g} s",
            mend="look into its log; when it was busy, raise `faults.wait_seconds`",
        ) from None


def kill(handle: Handle) -> None:
    """End its process at once, where the runtime can; `close` then has little to wait for."""
    at_once = getattr(handle, "kill", None)
    if at_once is not None:
        at_once()
