"""Both ends of a transport, as the driver sees them: a trainer that sends, engines that load, and bad ones."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

from miles_core.contracts.transport import Delivery, WireTensor
from miles_core.errors import RunError
from miles_core.testing.kit.receiving import fingerprint


class Source:
    """`contracts.transport.WeightSource` over the sending part of a transport. `fail`: the trainer breaks off in the
    middle of its tensors."""

    def __init__(self, transport: Any, tensors: list[WireTensor], *, fail: bool = False) -> None:
        self.tensors, self.sent, self.released = tensors, list[int](), list[int]()
        self._transport, self._fail = transport, fail

    async def send(self, version: int) -> Delivery:
        self.sent.append(version)
        delivery: Delivery = await asyncio.to_thread(self._transport.send, version, self._tensors())
        return delivery

    async def release(self, version: int) -> None:
        self.released.append(version)
        await asyncio.to_thread(self._transport.release, version)

    def _tensors(self) -> Iterator[WireTensor]:
        for place, wire in enumerate(self.tensors):
            if self._fail and place == len(self.tensors) // 2:
                raise RunError("the kit's trainer broke off")
            yield wire


class Target:
    """`contracts.transport.UpdateTarget` over the receiving part of a transport."""

    def __init__(self, name: str, transport: Any) -> None:
        self.name = name
        self.received: list[Any] = []
        self._transport = transport

    async def load(self, delivery: Delivery) -> None:
        self.received += await asyncio.to_thread(
            lambda: [fingerprint(wire) for wire in self._transport.receive(delivery)]
        )


class FailingTarget:
    """An engine that takes nothing."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def load(self, delivery: Delivery) -> None:
        await asyncio.sleep(0.01)
        raise RunError("the kit's engine takes no weights")


class HangingTarget(FailingTarget):
    """An engine that never answers."""

    async def load(self, delivery: Delivery) -> None:
        await asyncio.Event().wait()
