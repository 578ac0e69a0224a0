"""Publishing a version: every engine takes it and reports it before any of them generates again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Protocol

from miles_core.contracts.engine import PauseMode
from miles_core.contracts.transport import Delivery, UpdateManifest
from miles_core.errors import MilesError, PublicationError


class UpdatableEngine(Protocol):
    """The part of an engine's client that a publication needs."""

    @property
    def name(self) -> str: ...
    async def pause(self, mode: PauseMode) -> None: ...
    async def resume(self) -> None: ...
    async def begin_update(self, manifest: UpdateManifest) -> None: ...
    async def load(self, delivery: Delivery) -> None: ...
    async def finish_update(self) -> int: ...
    async def discard_update(self) -> None: ...
    async def version(self) -> int | None: ...


async def publish(
    manifest: UpdateManifest,
    engines: Sequence[UpdatableEngine],
    transfer: Callable[[], Awaitable[None]],
    pause_mode: PauseMode = PauseMode.RETRACT,
) -> None:
    """Bring `manifest.version` to all engines; `transfer` moves the tensors between begin and finish.

    Raises PublicationError when any step fails on any engine. The update is then discarded everywhere and no engine
    is resumed: none generates under weights of which the driver does not know the version.
    """
    await asyncio.gather(*(engine.pause(pause_mode) for engine in engines))
    try:
        await asyncio.gather(*(engine.begin_update(manifest) for engine in engines))
        await transfer()
        await asyncio.gather(*(engine.finish_update() for engine in engines))
        await _check_reports(manifest.version, engines)
    except Exception as error:
        discarded = await asyncio.gather(*(engine.discard_update() for engine in engines), return_exceptions=True)
        problems = [str(d) for d in discarded if isinstance(d, BaseException)]
        raise PublicationError(
            f"weight version {manifest.version} was not published: {error}"
            + (f"; discarding it failed too: {'; '.join(problems)}" if problems else ""),
            mend="the engines stay paused; `miles resume` continues from the last checkpoint",
        ) from error
    await asyncio.gather(*(engine.resume() for engine in engines))


async def _check_reports(version: int, engines: Sequence[UpdatableEngine]) -> None:
    reported = await asyncio.gather(*(engine.version() for engine in engines))
    wrong = [
        f"{engine.name} reports {found}" for engine, found in zip(engines, reported, strict=True) if found != version
    ]
    if wrong:
        raise MilesError(f"expected every engine to report version {version}, but {', '.join(wrong)}")
