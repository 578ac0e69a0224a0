"""Where engines get their weights: from the trainer through a transport, or from the model's own files."""

from __future__ import annotations

import asyncio
from pathlib import Path

from miles_core.contracts.transport import Delivery, Form, Transport, UpdateManifest
from miles_core.errors import WorkerDied
from miles_core.runtime.clients import RemoteEngine, RemoteTrainer


class TrainerWeights:
    """`loop.keeper.Weights`: what the trainer holds now."""

    def __init__(self, trainer: RemoteTrainer, transport: Transport) -> None:
        self._trainer = trainer
        self._transport = transport

    @property
    def lost(self) -> WorkerDied | None:
        handle = self._trainer.handle
        if handle.alive:
            return None
        return getattr(handle, "death", None) or WorkerDied(f"worker {handle.name!r} died, and with it the weights")

    async def manifest(self, version: int) -> UpdateManifest:
        return UpdateManifest(version, Form.TENSORS, (await self._trainer.facts()).tensors)

    async def transfer(self, version: int, engines: tuple[RemoteEngine, ...]) -> None:
        await self._transport.transfer(version, self._trainer, engines)


class DiskWeights:
    """`loop.keeper.Weights`: a directory that every engine can read. Nobody trains, so they are always there."""

    lost = None

    def __init__(self, path: Path) -> None:
        self._delivery = Delivery(Form.DISK, "disk", {"path": str(path)})

    async def manifest(self, version: int) -> UpdateManifest:
        return UpdateManifest(version, Form.DISK)

    async def transfer(self, version: int, engines: tuple[RemoteEngine, ...]) -> None:
        await asyncio.gather(*(engine.load(self._delivery) for engine in engines))
