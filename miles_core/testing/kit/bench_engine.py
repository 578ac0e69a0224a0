"""An engine on the bench: started, given weights, asked."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from collections.abc import Sequence as Several
from contextlib import asynccontextmanager
from typing import Any

import numpy as np

from miles_core.contracts.engine import EngineCapabilities, GenerateRequest, GenerateResult, PauseMode
from miles_core.contracts.transport import Delivery, Form, UpdateManifest, WireTensor
from miles_core.errors import MilesError
from miles_core.testing.fakes.char_renderer import CharRenderer
from miles_core.testing.kit.bench_model import bench_model, parts_of_a_run, sender
from miles_core.testing.kit.check import fail, skip
from miles_core.testing.kit.subject import ComponentSubject
from miles_core.types.sampling import NoiseKey, Sampling

PROMPT = "2+2="
ANSWER_SECONDS = 10.0
"""How long a refusal may take; it computes nothing."""


class EngineBench:
    """An engine in this process, and the weights that it is given. `name` is the one that it was built with."""

    def __init__(self, subject: ComponentSubject) -> None:
        self.model = bench_model(subject)
        self.name = f"{subject.registered.kind}-{subject.registered.component.name}"
        self.engine: Any = subject.build(model=self.model.files, parts=parts_of_a_run(subject))
        self._sender = sender(subject)
        self._sent = 0

    @property
    def capabilities(self) -> EngineCapabilities:
        capabilities: EngineCapabilities = self.engine.capabilities()
        return capabilities

    @property
    def mode(self) -> PauseMode:
        """A pause mode that it has: retract when it can."""
        modes = self.capabilities.pause_modes
        return PauseMode.RETRACT if PauseMode.RETRACT in modes else sorted(modes)[0]

    @property
    def form(self) -> Form:
        known = [form for form in (Form.TENSORS, Form.DISK) if form in self.capabilities.forms]
        if not known:
            skip(f"it takes weights as {sorted(self.capabilities.forms)} only, which the kit does not bring")
        return known[0]

    def manifest(self, version: int, tensors: Several[WireTensor]) -> UpdateManifest:
        infos = tuple(tensor.info for tensor in tensors) if self.form is Form.TENSORS else ()
        return UpdateManifest(version, self.form, infos)

    def delivery(self, number: int, tensors: Several[WireTensor]) -> Delivery:
        """The tensors (those of weights `number`, when it reads directories) as the engine's transport brings them."""
        if self.form is Form.DISK:
            return Delivery(Form.DISK, "kit", {"path": str(self.model.directory(number))})
        self._sent += 1
        delivery: Delivery = self._sender.send(self._sent, tensors)
        return delivery

    async def publish(self, version: int, *, number: int | None = None, mode: PauseMode | None = None) -> None:
        """Pause, bring the weights of that number (default: the version's) as that version, resume."""
        number = version if number is None else number
        await self.engine.pause(mode or self.mode)
        await self.update(version, number)
        await self.engine.resume()

    async def update(self, version: int, number: int) -> int:
        tensors = self.model.tensors(number)
        await self.engine.begin_update(self.manifest(version, tensors))
        await self.engine.load(self.delivery(number, tensors))
        finished: int = await self.engine.finish_update()
        return finished

    def request(self, name: str = "r", prompt: str = PROMPT, *, seed: int = 1, **sampling: Any) -> GenerateRequest:
        """Of 12 tokens at temperature 1 unless said otherwise; its noise depends on name and seed."""
        stops = self.model.files.card.stop_tokens
        chosen = Sampling(**{"max_new_tokens": 12, "stop_tokens": stops, **sampling})
        noise = NoiseKey(seed, "kit", name, 0, 0)
        return GenerateRequest(name, CharRenderer().encode(prompt), chosen, noise, affinity=name)

    async def generate(self, name: str = "r", prompt: str = PROMPT, **sampling: Any) -> GenerateResult:
        result: GenerateResult = await self.engine.generate(self.request(name, prompt, **sampling))
        return result

    def close(self) -> None:
        for number in range(1, self._sent + 1):
            self._sender.release(number)


@asynccontextmanager
async def engine_bench(subject: ComponentSubject, *, publish: bool = True) -> AsyncIterator[EngineBench]:
    """A started engine, with weights 1 as version 1 unless not `publish`."""
    bench = EngineBench(subject)
    try:
        await bench.engine.start()
        if publish:
            await bench.publish(1)
        yield bench
    finally:
        bench.close()
        await bench.engine.close()


async def refused(call: Awaitable[Any], wanted: type[MilesError], what: str, mend: str) -> None:
    """Fail unless the call raises that error, and soon."""
    try:
        await asyncio.wait_for(call, ANSWER_SECONDS)
    except wanted:
        return
    except TimeoutError:
        fail(f"{what}: no answer", f"raise {wanted.__name__} at once: {mend}")
    except Exception as error:
        fail(f"{what}: {type(error).__name__}: {error}", f"raise miles_core.{wanted.__name__} instead: {mend}")
    fail(f"{what} is accepted", f"raise miles_core.{wanted.__name__}: {mend}")


async def soon(condition: Callable[[], Awaitable[bool]]) -> bool:
    """Whether the condition comes true within ANSWER_SECONDS."""
    for _ in range(int(ANSWER_SECONDS / 0.01)):
        if await condition():
            return True
        await asyncio.sleep(0.01)
    return await condition()


def same_tokens(first: GenerateResult, second: GenerateResult) -> bool:
    return np.array_equal(first.tokens, second.tokens)
