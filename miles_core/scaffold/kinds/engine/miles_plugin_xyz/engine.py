"""An engine over one vector of logits, in numpy."""

import asyncio
from typing import Any

import numpy as np
from miles_core import (
    BuildContext,
    Delivery,
    EngineCapabilities,
    EngineStats,
    Finish,
    Form,
    GenerateRequest,
    GenerateResult,
    Health,
    PauseMode,
    RequestError,
    RunError,
    UpdateManifest,
)
from numpy.typing import NDArray

from miles_plugin_xyz.options import XyzOptions
from miles_plugin_xyz.output import Output


class XyzEngine:
    """Computes one token at a time, so that a pause always falls between two. See `miles_core.Engine`."""

    def __init__(self, options: XyzOptions, context: BuildContext) -> None:
        if context.model is None:
            raise RequestError("engine xyz needs a model", mend="write `model: {use: toy}`")
        self._name = context.name
        self._card = context.model.card
        self._tensor = options.tensor
        self._transport = context.part("transport") if "transport" in context.parts else None
        self._weights: NDArray[Any] | None = None
        self._version: int | None = None
        self._update: UpdateManifest | None = None
        self._arrived: NDArray[Any] | None = None
        self._mode: PauseMode | None = None
        self._aborts = 0
        self._changed = asyncio.Event()
        self._closed = False
        self._running = self._prompted = self._sampled = 0

    def capabilities(self) -> EngineCapabilities:
        forms = frozenset({Form.TENSORS, Form.DISK})
        return EngineCapabilities(context=self._card.context, forms=forms, atomic_update=True)

    async def start(self) -> None:
        pass

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        self._check(request)
        if self._closed or (self._weights is None and self._mode is None):
            raise RunError(f"engine {self._name!r} {'is closed' if self._closed else 'has no usable weights'}")
        noise = np.random.Generator(np.random.Philox(request.noise.digest()))
        output = Output()
        self._prompted += len(request.tokens)
        self._running += 1
        try:
            finish = await self._sample(request, noise, output)
        finally:
            self._running -= 1
        return output.result(request.id, self._name, finish)

    async def pause(self, mode: PauseMode) -> None:
        self._mode = mode
        self._aborts += mode is PauseMode.ABORT
        self._changed.set()

    async def resume(self) -> None:
        if self._weights is None or self._update is not None:
            raise RunError(f"engine {self._name!r} has no usable weights")
        self._mode = None
        self._changed.set()

    async def begin_update(self, manifest: UpdateManifest) -> None:
        if self._update is not None or self._mode is None:
            raise RunError(f"engine {self._name!r} is not paused, or has an update open")
        brings = [(info.name, info.shape, info.dtype) for info in manifest.tensors]
        if manifest.form is Form.TENSORS and brings != [(self._tensor, (self._card.vocabulary,), "float32")]:
            raise RunError(
                f"an update brings {brings}, engine {self._name!r} takes one float32 tensor {self._tensor!r} "
                f"[{self._card.vocabulary}]"
            )
        self._update, self._arrived = manifest, None

    async def load(self, delivery: Delivery) -> None:
        if self._update is None:
            raise RunError(f"engine {self._name!r} has no update open")
        if delivery.form is Form.DISK:  # nobody trains: the model as it is before the first step
            self._arrived = np.zeros(self._card.vocabulary, np.float32)
            return
        if self._transport is None:
            raise RunError(f"engine {self._name!r} was built without a transport")
        for tensor in self._transport.receive(delivery):
            self._arrived = tensor.data.view(np.float32).copy()  # valid until the next one only

    async def finish_update(self) -> int:
        if self._update is None or self._arrived is None:
            raise RunError(f"engine {self._name!r} has not received the whole update")
        self._weights, self._version = self._arrived, self._update.version
        self._update = self._arrived = None
        return self._version

    async def discard_update(self) -> None:
        self._update = self._arrived = None

    async def version(self) -> int | None:
        return self._version

    async def flush_cache(self) -> None:
        pass

    async def stats(self) -> EngineStats:
        return EngineStats(prompt_tokens=self._prompted, sampled_tokens=self._sampled, running=self._running)

    async def health(self) -> Health:
        return Health(self._weights is not None, "" if self._weights is not None else "no weights yet")

    async def close(self) -> None:
        self._closed = True

    def _check(self, request: GenerateRequest) -> None:
        asked = len(request.tokens) + request.sampling.max_new_tokens
        if request.sampling.top_p < 1 or request.sampling.top_k > 0:
            raise RequestError(f"request {request.id!r} truncates, which engine {self._name!r} does not declare")
        if len(request.tokens) == 0:
            raise RequestError(f"request {request.id!r} has no token to go on from")
        if asked > self._card.context:
            raise RequestError(f"request {request.id!r} asks for {asked} tokens, the context is {self._card.context}")
        if (request.tokens < 0).any() or (request.tokens >= self._card.vocabulary).any():
            raise RequestError(f"request {request.id!r} has a token outside the vocabulary of {self._card.vocabulary}")

    async def _sample(self, request: GenerateRequest, noise: np.random.Generator, output: Output) -> Finish:
        """Add tokens to `output` until there is a reason to stop."""
        stops = {*self._card.stop_tokens, *request.sampling.stop_tokens}
        aborts = self._aborts
        while len(output.tokens) < request.sampling.max_new_tokens:
            await self._until_running(aborts)
            if self._aborts > aborts:
                return Finish.ABORT
            token, logprob = choose(self._logits_after(output.tokens), request.sampling.temperature, noise.random())
            output.add(token, logprob, self._version or 0)
            self._sampled += 1
            if token in stops and not request.sampling.ignore_stop:
                return Finish.STOP
        return Finish.LENGTH

    async def _until_running(self, aborts: int) -> None:
        """Give way to other requests, and wait while paused or without weights."""
        await asyncio.sleep(0)
        while self._aborts == aborts and (self._mode is not None or self._weights is None):
            self._changed.clear()
            await self._changed.wait()

    def _logits_after(self, tokens: list[int]) -> NDArray[Any]:
        """float32 [vocabulary] of the next token. This model does not look at what stands before it."""
        assert self._weights is not None
        return self._weights


def choose(logits: NDArray[Any], temperature: float, uniform: float) -> tuple[int, float]:
    """A token and its log-prob at the temperature: the inverse of the cumulative distribution at `uniform`, or the
    likeliest token at temperature 0."""
    scaled = logits.astype(np.float64) / (temperature or 1.0)
    logprobs = scaled - np.logaddexp.reduce(scaled)
    if temperature == 0:
        token = int(logprobs.argmax())
    else:
        token = min(int(np.searchsorted(np.exp(logprobs).cumsum(), uniform)), len(logits) - 1)
    return token, float(logprobs[token])
