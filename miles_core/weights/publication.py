"""Publishing a version: every engine takes it and reports it before any of them generates again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from miles_core.contracts.engine import PauseMode
from miles_core.contracts.transport import Delivery, UpdateManifest
from miles_core.errors import MilesError, PublicationError

Result = TypeVar("Result")


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
    is resumed: none generates under weights of which the driver does not know the version. Raises WorkerDied when an
    engine dies before the update begins or after it is complete. Nothing goes on when it raises, so that whoever
    knows the dead may publish again to the others.
    """
    await all_ended(engine.pause(pause_mode) for engine in engines)
    try:
        await all_ended(engine.begin_update(manifest) for engine in engines)
        await transfer()
        await all_ended(engine.finish_update() for engine in engines)
        await _check_reports(manifest.version, engines)
    except Exception as error:
        discarded = await asyncio.gather(*(engine.discard_update() for engine in engines), return_exceptions=True)
        problems = [str(d) for d in discarded if isinstance(d, BaseException)]
        raise PublicationError(
            f"weight version {manifest.version} was not published: {error}"
            + (f"; discarding it failed too: {'; '.join(problems)}" if problems else ""),
            mend="the engines stay paused; `miles resume` continues from the last checkpoint",
        ) from error
    await all_ended(engine.resume() for engine in engines)


async def all_ended(calls: Iterable[Awaitable[Result]]) -> list[Result]:
    """All results, once every call has ended. Raises the first failure."""
    ended = await asyncio.gather(*calls, return_exceptions=True)
    for each in ended:
        if isinstance(each, BaseException):
            raise each
    return [each for each in ended if not isinstance(each, BaseException)]


async def _check_reports(version: int, engines: Sequence[UpdatableEngine]) -> None:
    reported = await all_ended(engine.version() for engine in engines)
    wrong = [
        f"{engine.name} reports {found}" for engine, found in zip(engines, reported, strict=True) if found != version
    ]
    if wrong:
        raise MilesError(f"expected every engine to report version {version}, but {', '.join(wrong)}")
