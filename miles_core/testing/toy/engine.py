"""An engine over the toy model. Small enough to read as an example of the contract; every promise is kept."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
from pydantic import Field

from miles_core.contracts.component import BuildContext
from miles_core.contracts.engine import (
    EngineCapabilities,
    EngineStats,
    Finish,
    GenerateRequest,
    GenerateResult,
    PauseMode,
    VersionSpan,
)
from miles_core.contracts.lifecycle import Health
from miles_core.contracts.options import Options
from miles_core.contracts.transport import Delivery, Form, UpdateManifest, WireTensor
from miles_core.errors import RequestError, RunError
from miles_core.testing.fakes.char_renderer import STOP, VOCABULARY
from miles_core.testing.toy.model import TENSOR
from miles_core.types.sequence import FloatArray

DTYPES = ("float32", "bfloat16", "float16")


class ToyEngineOptions(Options):
    """Options of the toy engine."""

    seconds_per_token: float = Field(default=0.0, ge=0, description="pretend to compute this long")


class ToyEngine:
    """See `contracts.engine.Engine`. Samples token by token, so that pauses fall between tokens."""

    def __init__(self, options: ToyEngineOptions, context: BuildContext) -> None:
        if context.model is None:
            raise RequestError("the toy engine needs a model", mend="add `model: {use: toy}`")
        self._name = context.name
        self._context_length = context.model.card.context
        self._delay = options.seconds_per_token
        self._transport = context.part("transport") if "transport" in context.parts else None
        self._logits: FloatArray | None = None
        self._version: int | None = None
        self._update: UpdateManifest | None = None
        self._staged: FloatArray | None = None
        self._paused: PauseMode | None = None
        self._aborts = 0
        self._closed = False
        self._changed = asyncio.Condition()
        self._stats = EngineStats()
        self._in_flight = 0

    def capabilities(self) -> EngineCapabilities:
        return EngineCapabilities(
            context=self._context_length, forms=frozenset({Form.TENSORS, Form.DISK}), atomic_update=True, images=True
        )

    async def start(self) -> None:
        pass

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        self._check(request)
        if self._closed or (self._logits is None and self._paused is None):
            raise RunError(f"engine {self._name!r} is closed, or has no usable weights")
        self._in_flight += 1
        try:
            return await self._continue(request)
        finally:
            self._in_flight -= 1

    async def _continue(self, request: GenerateRequest) -> GenerateResult:
        noise = np.random.Generator(np.random.Philox(request.noise.digest()))
        limit, aborts = request.sampling.max_new_tokens, self._aborts
        tokens: list[int] = []
        logprobs: list[float] = []
        versions: list[int] = []
        finish = Finish.LENGTH
        while len(tokens) < limit:
            await self._until_running(aborts)
            if self._aborts > aborts:
                finish = Finish.ABORT
                break
            token, logprob = self._sample(request.sampling.temperature, noise.random())
            tokens.append(token)
            logprobs.append(logprob)
            versions.append(self._version or 0)
            if token in (STOP, *request.sampling.stop_tokens) and not request.sampling.ignore_stop:
                finish = Finish.STOP
                break
        self._stats = EngineStats(
            prompt_tokens=self._stats.prompt_tokens + len(request.tokens),
            sampled_tokens=self._stats.sampled_tokens + len(tokens),
        )
        return GenerateResult(
            request.id,
            self._name,
            np.array(tokens, np.int32),
            np.array(logprobs, np.float32),
            _spans(versions),
            finish,
        )

    async def pause(self, mode: PauseMode) -> None:
        if mode is PauseMode.ABORT and self._paused is not PauseMode.ABORT:
            self._aborts += 1
        self._paused = mode
        await self._notify()

    async def resume(self) -> None:
        if self._logits is None:
            raise RunError(f"engine {self._name!r} has no usable weights")
        self._paused = None
        await self._notify()

    async def begin_update(self, manifest: UpdateManifest) -> None:
        if self._update is not None or self._paused is None:
            raise RunError(f"engine {self._name!r} is not paused, or has an update open")
        brings = [(tensor.name, tensor.shape, tensor.dtype) for tensor in manifest.tensors]
        fitting = [[(TENSOR, (VOCABULARY,), dtype)] for dtype in DTYPES]
        if manifest.form is Form.TENSORS and brings not in fitting:
            raise RunError(
                f"the toy engine takes one tensor {TENSOR!r} [{VOCABULARY}] of {' or '.join(DTYPES)}, "
                f"an update has {brings}"
            )
        self._update, self._staged = manifest, None

    async def load(self, delivery: Delivery) -> None:
        if self._update is None:
            raise RunError(f"engine {self._name!r} has no update open")
        if delivery.form is Form.DISK:
            self._staged = _read(Path(delivery.address["path"]))
            return
        if self._transport is None:
            raise RunError(f"engine {self._name!r} was built without a transport")
        for tensor in self._transport.receive(delivery):
            self._staged = _float32(tensor)

    async def finish_update(self) -> int:
        if self._update is None or self._staged is None:
            raise RunError(f"engine {self._name!r} has not received the whole update")
        self._logits, self._version = self._staged, self._update.version
        self._update = self._staged = None
        return self._version

    async def discard_update(self) -> None:
        self._update = self._staged = None

    async def version(self) -> int | None:
        return self._version

    async def flush_cache(self) -> None:
        pass

    async def stats(self) -> EngineStats:
        return replace(self._stats, running=self._in_flight)

    async def health(self) -> Health:
        return Health(self._logits is not None, "" if self._logits is not None else "no weights yet")

    async def close(self) -> None:
        self._closed = True
        await self._notify()

    def _check(self, request: GenerateRequest) -> None:
        sampling = request.sampling
        asked = len(request.tokens) + sampling.max_new_tokens
        if not len(request.tokens) or sampling.max_new_tokens < 1:
            raise RequestError(f"request {request.id!r} has no token, or asks for none")
        if (sampling.top_p, sampling.top_k) != (1.0, 0):
            raise RequestError(f"request {request.id!r} asks for top_p or top_k, which the toy engine does not have")
        if asked > self._context_length:
            raise RequestError(f"request {request.id!r} asks for {asked} tokens, the context is {self._context_length}")
        if (request.tokens >= VOCABULARY).any() or (request.tokens < 0).any():
            raise RequestError(f"request {request.id!r} has a token outside the vocabulary of {VOCABULARY}")

    async def _until_running(self, aborts: int) -> None:
        if self._delay:
            await asyncio.sleep(self._delay)
        async with self._changed:
            await self._changed.wait_for(
                lambda: self._closed or self._aborts > aborts or (self._paused is None and self._logits is not None)
            )
        if self._closed:
            raise RunError(f"engine {self._name!r} was closed")

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    def _sample(self, temperature: float, uniform: float) -> tuple[int, float]:
        """Inverse of the cumulative distribution at `uniform`, or the mode at temperature 0."""
        assert self._logits is not None
        scaled = self._logits.astype(np.float64) / (temperature or 1.0)
        logprobs = scaled - np.logaddexp.reduce(scaled)
        if temperature == 0:
            token = int(logprobs.argmax())
        else:
            token = min(int(np.searchsorted(np.exp(logprobs).cumsum(), uniform)), VOCABULARY - 1)
        return token, float(logprobs[token])


def _read(folder: Path) -> FloatArray:
    """What the toy trainer exported there; the model's own folder has no file, and zeros for weights."""
    file = folder / "toy.json"
    logits = json.loads(file.read_text())["logits"] if file.exists() else [0.0] * VOCABULARY
    return np.array(logits, np.float32)


def _float32(tensor: WireTensor) -> FloatArray:
    """A copy: the arrays of a delivery do not last."""
    if tensor.info.dtype == "bfloat16":  # the upper half of a float32
        return (tensor.data.view(np.uint16).astype(np.uint32) << 16).view(np.float32)
    return tensor.data.view(tensor.info.dtype).astype(np.float32)


def _spans(versions: list[int]) -> tuple[VersionSpan, ...]:
    """Runs of equal versions."""
    spans: list[VersionSpan] = []
    for place, version in enumerate(versions):
        if spans and spans[-1].version == version:
            spans[-1] = VersionSpan(version, spans[-1].start, place + 1)
        else:
            spans.append(VersionSpan(version, place, place + 1))
    return tuple(spans)
