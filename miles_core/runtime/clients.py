"""Typed clients of components that live in other processes: what the driver calls instead of `handle.call`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Several
from pathlib import Path

from miles_core.contracts.component import ComponentRef
from miles_core.contracts.engine import EngineCapabilities, EngineStats, GenerateRequest, GenerateResult, PauseMode
from miles_core.contracts.lifecycle import Health
from miles_core.contracts.observing import Handle
from miles_core.contracts.trainer import StepReport, TrainerFacts
from miles_core.contracts.transport import Delivery, UpdateManifest
from miles_core.errors import RequestError
from miles_core.types.batch import Batch
from miles_core.types.sequence import FloatArray, Sequence


class RemoteEngine:
    """`contracts.engine.Engine` behind a handle; each method is awaited."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle

    @property
    def name(self) -> str:
        return self.handle.name

    async def capabilities(self) -> EngineCapabilities:
        found: EngineCapabilities = await self.handle.call("capabilities")
        return found

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """Raises RequestError too for a request with images where the engine declares none: it would answer as if they
        were not there."""
        if request.images and not (await self.capabilities()).images:
            raise RequestError(
                f"request {request.id!r} has images, and engine {self.name!r} takes none",
                mend="use an engine and a model that take images",
            )
        result: GenerateResult = await self.handle.call("generate", request)
        return result

    async def pause(self, mode: PauseMode) -> None:
        await self.handle.call("pause", mode)

    async def resume(self) -> None:
        await self.handle.call("resume")

    async def begin_update(self, manifest: UpdateManifest) -> None:
        await self.handle.call("begin_update", manifest)

    async def load(self, delivery: Delivery) -> None:
        await self.handle.call("load", delivery)

    async def finish_update(self) -> int:
        version: int = await self.handle.call("finish_update")
        return version

    async def discard_update(self) -> None:
        await self.handle.call("discard_update")

    async def version(self) -> int | None:
        version: int | None = await self.handle.call("version")
        return version

    async def stats(self) -> EngineStats:
        stats: EngineStats = await self.handle.call("stats")
        return stats

    async def health(self) -> Health:
        health: Health = await self.handle.call("health")
        return health


class RemoteTrainer:
    """`contracts.trainer.Trainer` behind a handle; each method is awaited."""

    def __init__(self, handle: Handle) -> None:
        self.handle = handle

    async def facts(self) -> TrainerFacts:
        facts: TrainerFacts = await self.handle.call("facts")
        return facts

    async def begin_phase(self, parts: Mapping[str, ComponentRef]) -> None:
        await self.handle.call("begin_phase", dict(parts))

    async def score(self, sequences: Several[Sequence]) -> list[FloatArray]:
        await self._refuse_images(sequences)
        scores: list[FloatArray] = await self.handle.call("score", list(sequences))
        return scores

    async def step(self, batch: Batch) -> StepReport:
        await self._refuse_images(row.sequence for row in batch.rows)
        report: StepReport = await self.handle.call("step", batch)
        return report

    async def send(self, version: int) -> Delivery:
        delivery: Delivery = await self.handle.call("send", version)
        return delivery

    async def release(self, version: int) -> None:
        await self.handle.call("release", version)

    async def save(self, folder: Path) -> None:
        await self.handle.call("save", folder)

    async def load(self, folder: Path) -> None:
        await self.handle.call("load", folder)

    async def export(self, folder: Path) -> None:
        await self.handle.call("export", folder)

    async def _refuse_images(self, sequences: Iterable[Sequence]) -> None:
        """Raises RequestError for a sequence with images where the trainer declares none."""
        if any(sequence.images for sequence in sequences) and not (await self.facts()).images:
            raise RequestError(
                f"there are sequences with images, and trainer {self.handle.name!r} takes none",
                mend="use a trainer and a model that take images",
            )
