"""All engines report the version, or none goes on."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import numpy as np
import pytest

from miles_core import (
    BuildContext,
    ComponentRef,
    Delivery,
    Form,
    ModelFiles,
    NoiseKey,
    PauseMode,
    PublicationError,
    RunError,
    Sampling,
    TensorInfo,
    UpdateManifest,
    WireTensor,
)
from miles_core.contracts.engine import GenerateRequest
from miles_core.contracts.options import NoOptions
from miles_core.testing.fakes.char_renderer import VOCABULARY
from miles_core.testing.toy.engine import ToyEngine, ToyEngineOptions
from miles_core.testing.toy.model import TENSOR, ToyModel, ToyModelOptions
from miles_core.weights.publication import publish
from miles_core.weights.shared_memory import SharedMemoryTransport

NO_OPTIONS = "miles_core.contracts.options:NoOptions"
SHARED_MEMORY = ComponentRef(
    "transport",
    "shared-memory",
    "miles_core.weights.shared_memory:SharedMemoryTransport",
    NO_OPTIONS,
    {},
    "",
    "",
)


class NamedEngine(ToyEngine):
    """The toy engine with a client's name."""

    name = property(lambda self: self._name)


def engine(name: str, kind: type[NamedEngine] = NamedEngine) -> NamedEngine:
    model = ToyModel(ToyModelOptions(), BuildContext(1, "m"))
    context = BuildContext(
        1, name, model=ModelFiles(model.materialise().path, model.describe()), parts={"transport": SHARED_MEMORY}
    )
    return kind(ToyEngineOptions(), context)


class Source:
    """A trainer's sending half with known logits."""

    def __init__(self, logits: np.ndarray) -> None:
        self.transport = SharedMemoryTransport(NoOptions(), BuildContext(1, "trainer"))
        self.logits = logits.astype(np.float32)
        self.released: list[int] = []

    async def send(self, version: int) -> Delivery:
        info = TensorInfo(TENSOR, self.logits.shape, "float32")
        return self.transport.send(version, [WireTensor(info, self.logits.view(np.uint8))])

    async def release(self, version: int) -> None:
        self.transport.release(version)
        self.released.append(version)


def manifest(version: int, shape: tuple[int, ...] = (VOCABULARY,)) -> UpdateManifest:
    return UpdateManifest(version, Form.TENSORS, (TensorInfo(TENSOR, shape, "float32"),))


def request(temperature: float = 1.0, tokens: int = 4) -> GenerateRequest:
    noise = NoiseKey(1, "test", "t", 0, 0)
    return GenerateRequest("r", np.array([65], np.int32), Sampling(temperature, tokens, ignore_stop=True), noise, "a")


async def test_every_engine_runs_what_was_published():
    engines = [engine("a"), engine("b")]
    logits = np.zeros(VOCABULARY)
    logits[ord("x")] = 50.0
    source = Source(logits)
    await publish(manifest(1), engines, lambda: source.transport.transfer(1, source, tuple(engines)))
    assert [await e.version() for e in engines] == [1, 1]
    results = await asyncio.gather(*(e.generate(request()) for e in engines))
    assert all(r.tokens.tolist() == [ord("x")] * 4 for r in results)
    assert source.released == [1]


class Deaf(NamedEngine):
    async def finish_update(self) -> int:
        await self.discard_update()
        return 99


class Broken(NamedEngine):
    async def load(self, delivery: Delivery) -> None:
        raise RunError("the link is down")


@pytest.mark.parametrize(("kind", "says"), [(Deaf, "b reports None"), (Broken, "the link is down")])
async def test_one_bad_engine_stops_all(kind, says):
    engines = [engine("a"), engine("b", kind)]
    source = Source(np.zeros(VOCABULARY))
    with pytest.raises(PublicationError, match=says):
        await publish(manifest(1), engines, lambda: source.transport.transfer(1, source, tuple(engines)))
    assert source.released == [1]
    waiting = asyncio.create_task(engines[0].generate(request()))
    done, _ = await asyncio.wait([waiting], timeout=0.1)
    assert not done  # still paused: nothing is generated under a version that the driver did not confirm
    waiting.cancel()


async def test_other_shapes_are_refused_before_anything_changes():
    engines = [engine("a")]
    source = Source(np.zeros(VOCABULARY))
    await publish(manifest(1), engines, lambda: source.transport.transfer(1, source, tuple(engines)))
    with pytest.raises(PublicationError, match="takes one"):
        await publish(manifest(2, (3,)), engines, lambda: source.transport.transfer(2, source, tuple(engines)))
    assert await engines[0].version() == 1


async def test_a_request_in_flight_over_an_update_carries_both_versions():
    slow = engine("a")
    slow._delay = 0.02
    source = Source(np.zeros(VOCABULARY))
    await publish(manifest(1), [slow], lambda: source.transport.transfer(1, source, (slow,)))
    running = asyncio.create_task(slow.generate(request(tokens=12)))
    await asyncio.sleep(0.1)
    await publish(manifest(2), [slow], lambda: source.transport.transfer(2, source, (slow,)), PauseMode.RETRACT)
    result = await running
    assert [span.version for span in result.spans] == [1, 2]
    assert result.spans[-1].stop == 12


def test_shared_memory_of_another_machine_is_not_read():
    transport = SharedMemoryTransport(NoOptions(), BuildContext(1, "t"))
    data = np.arange(4, dtype=np.uint8)
    sent = transport.send(1, [WireTensor(TensorInfo("a", (4,), "uint8"), data)])
    foreign = replace(sent, address={**sent.address, "machine": "another boot pid:[1]"})
    with pytest.raises(RunError, match="another machine or container"):
        next(transport.receive(foreign))
    assert bytes(next(transport.receive(sent)).data) == bytes(data)
    transport.release(1)


def test_shared_memory_carries_every_byte_and_leaves_nothing():
    transport = SharedMemoryTransport(NoOptions(), BuildContext(1, "t"))
    rng = np.random.default_rng(0)
    sent = [
        WireTensor(TensorInfo(f"t{i}", (n,), "uint8"), rng.integers(0, 255, n).astype(np.uint8))
        for i, n in enumerate([1, 63, 64, 65, 1000, 0])
    ]
    delivery = transport.send(3, sent)
    received = [(t.info, t.data.copy()) for t in transport.receive(delivery)]
    assert [info for info, _ in received] == [t.info for t in sent]
    assert all(np.array_equal(data, t.data) for (_, data), t in zip(received, sent, strict=True))
    transport.release(3)
    transport.release(3)
    with pytest.raises(FileNotFoundError):
        list(transport.receive(delivery))
