"""Where engines get their weights: from the trainer through a transport, or from the model's own files."""

from __future__ import annotations

import asyncio
from pathlib import Path

from miles_core.contracts.transport import Delivery, Form, Transport, UpdateManifest
from miles_core.errors import WorkerDied
from miles_core.runtime.clients import RemoteEngine, RemoteTrainer
from miles_core.weights.publication import all_ended


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
        targets = tuple(_Target(engine) for engine in engines)
        try:
            await self._transport.transfer(version, self._trainer, targets)
        finally:
            await asyncio.gather(*(load for target in targets for load in target.loading), return_exceptions=True)


class _Target:
    """An engine as a transport sees it. What it loads is known, so that nothing goes on after a transfer that failed:
    the engines that live get the same version once more."""

    def __init__(self, engine: RemoteEngine) -> None:
        self.name = engine.name
        self.loading: list[asyncio.Task[None]] = []
        self._engine = engine

    async def load(self, delivery: Delivery) -> None:
        task = asyncio.create_task(self._engine.load(delivery), name=f"load of {self.name}")
        self.loading.append(task)
        await task


class DiskWeights:
    """`loop.keeper.Weights`: a directory that every engine can read. Nobody trains, so they are always there."""

    lost = None

    def __init__(self, path: Path) -> None:
        self._delivery = Delivery(Form.DISK, "disk", {"path": str(path)})

    async def manifest(self, version: int) -> UpdateManifest:
        return UpdateManifest(version, Form.DISK)

    async def transfer(self, version: int, engines: tuple[RemoteEngine, ...]) -> None:
        await all_ended(engine.load(self._delivery) for engine in engines)
