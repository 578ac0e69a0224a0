"""The engine `torch`: the contract's coroutines in front of one computing thread."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig

from miles_core import (
    BuildContext,
    Delivery,
    EngineCapabilities,
    EngineStats,
    Form,
    GenerateRequest,
    GenerateResult,
    Health,
    ModelFiles,
    PauseMode,
    RequestError,
    RunError,
    UpdateManifest,
)
from miles_plugin_torch.engine.architecture import dense_shape, why_not_dense
from miles_plugin_torch.engine.computing import ComputingThread
from miles_plugin_torch.engine.decoder import Decoder, DenseDecoder
from miles_plugin_torch.engine.live import Live
from miles_plugin_torch.engine.options import TorchEngineOptions
from miles_plugin_torch.engine.scheduler import Scheduler
from miles_plugin_torch.engine.update import Updater
from miles_plugin_torch.vision import ARCHITECTURES as VISION

log = logging.getLogger(__name__)


class TorchEngine:
    """An inference replica in plain PyTorch. See `miles_core.Engine` for what the methods do and raise."""

    def __init__(self, options: TorchEngineOptions, context: BuildContext) -> None:
        if context.model is None:
            raise RequestError("the engine torch needs a model", mend="give the recipe a model: entry")
        self.name = context.name
        self.decoder_choice = ""
        """`dense`, or `transformers: why the dense decoder does not compute this model`."""
        self._options, self._files = options, context.model
        self._transport = context.part("transport") if "transport" in context.parts else None
        self._context = min(options.context or context.model.card.context, context.model.card.context)
        self._thread = ComputingThread(
            f"{context.name}-computing", options.thread_count(), self._ready, self._step, self._failed
        )
        self._arriving: list[Live] = []
        self._arrivals = 0
        self._futures: dict[Live, tuple[asyncio.AbstractEventLoop, asyncio.Future[GenerateResult]]] = {}
        self._pause: PauseMode | None = None
        self._fault: str | None = None

    async def start(self) -> None:
        self._thread.start()
        await self._thread.call(self._build)
        log.info("engine %s decodes with: %s", self.name, self.decoder_choice)

    def capabilities(self) -> EngineCapabilities:
        return EngineCapabilities(
            context=self._context,
            pause_modes=frozenset(PauseMode),
            forms=frozenset({Form.TENSORS, Form.DISK}),
            truncation=True,
            noise_keyed=True,
            atomic_update=True,
            images=self._files.card.architecture in VISION,
        )

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        if not self._thread.alive:
            raise RunError(f"engine {self.name} is not started, or closed")
        self._check(request)
        if self._updater.version is None and self._pause is None:
            raise self._unusable()
        loop = asyncio.get_running_loop()
        live = Live(request, self._arrivals)
        self._arrivals += 1
        self._futures[live] = (loop, loop.create_future())
        if not self._arriving:
            loop.call_soon(self._hand_over)
        self._arriving.append(live)
        future = self._futures[live][1]
        try:
            return await future
        finally:
            self._futures.pop(live, None)
            if not future.done() or future.cancelled():
                self._withdraw(live)

    async def pause(self, mode: PauseMode) -> None:
        await self._thread.call(self._pause_now, PauseMode(mode))

    async def resume(self) -> None:
        await self._thread.call(self._resume_now)

    async def begin_update(self, manifest: UpdateManifest) -> None:
        await self._thread.call(self._begin, manifest)

    async def load(self, delivery: Delivery) -> None:
        await self._thread.call(self._updater.load, delivery)

    async def finish_update(self) -> int:
        return await self._thread.call(self._finish)

    async def discard_update(self) -> None:
        await self._thread.call(self._updater.discard)

    async def version(self) -> int | None:
        return self._updater.version

    async def flush_cache(self) -> None:
        await self._thread.call(self._scheduler.flush)

    async def stats(self) -> EngineStats:
        return await self._thread.call(lambda: self._scheduler.stats(self._thread.busy_seconds))

    async def health(self) -> Health:
        if self._fault is not None:
            return Health(False, self._fault)
        return Health(True) if self._thread.alive else Health(False, "the computing thread is not running")

    async def close(self) -> None:
        for live in list(self._futures):
            self._answer(live, RunError(f"engine {self.name} was closed"))
        await self._thread.stop()

    # On the event loop

    def _check(self, request: GenerateRequest) -> None:
        """Raise RequestError for what this engine can never do."""
        tokens, sampling = request.tokens, request.sampling
        where = f"request {request.id!r}"
        if tokens.ndim != 1 or not len(tokens) or tokens.dtype != np.int32:
            raise RequestError(f"tokens are {tokens.dtype} {tokens.shape}, expected int32 [n], n >= 1", where=where)
        if request.adapter is not None:
            raise RequestError(f"adapter {request.adapter!r} asked for; the torch engine has none", where=where)
        if sampling.max_new_tokens < 1 or sampling.temperature < 0 or not 0 < sampling.top_p <= 1 or sampling.top_k < 0:
            raise RequestError(
                f"{sampling} is out of range: max_new_tokens >= 1, temperature >= 0, 0 < top_p <= 1, top_k >= 0",
                where=where,
            )
        outside = tokens[(tokens < 0) | (tokens >= self._decoder.vocabulary)]
        if len(outside):
            raise RequestError(
                f"token id {outside[0]} is outside the vocabulary of {self._decoder.vocabulary}", where=where
            )
        total = len(tokens) + sampling.max_new_tokens
        if total > self._context:
            raise RequestError(
                f"{len(tokens)} prompt tokens and max_new_tokens {sampling.max_new_tokens} exceed the context "
                f"of {self._context}",
                where=where,
                mend="shorten the prompt or lower max_new_tokens",
            )
        if request.images:
            self._check_images(request)
        needed = Scheduler.tokens_needed(request)
        if needed > self._options.kv_tokens:
            raise RequestError(
                f"it needs {needed} tokens of KV memory, the engine has {self._options.kv_tokens}",
                where=where,
                mend="raise the engine's kv_tokens",
            )

    def _check_images(self, request: GenerateRequest) -> None:
        where = f"request {request.id!r}"
        if self._decoder.vision is None:
            raise RequestError(
                f"it has images, and {self._files.card.architecture} takes none",
                where=where,
                mend=f"models that see: {', '.join(sorted(VISION))}",
            )
        try:
            self._decoder.vision.check(request.images)
        except RequestError as error:
            raise RequestError([replace(each, where=where) for each in error.problems]) from error

    def _unusable(self) -> RunError:
        return RunError(
            f"engine {self.name} has no usable weights" + (f": {self._fault}" if self._fault else ""),
            mend="publish weights to it first",
        )

    def _hand_over(self) -> None:
        """Give the computing thread all requests of this tick together."""
        arrived, self._arriving = self._arriving, []
        self._thread.post(lambda: self._submit(arrived))

    def _withdraw(self, live: Live) -> None:
        """The caller of `generate` was cancelled: free what the request holds."""
        if live in self._arriving:
            self._arriving.remove(live)
        else:
            self._thread.post(lambda: self._scheduler.remove(live))

    def _answer(self, live: Live, outcome: GenerateResult | Exception) -> None:
        """From any thread: let `generate` return or raise."""
        found = self._futures.get(live)
        if found is None:
            return
        loop, future = found

        def deliver() -> None:
            if future.done():
                return
            if isinstance(outcome, Exception):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)

        loop.call_soon_threadsafe(deliver)

    # In the computing thread

    def _build(self) -> None:
        config, architecture = AutoConfig.from_pretrained(self._files.path), self._files.card.architecture
        device, dtype = torch.device(self._options.device), getattr(torch, self._options.dtype)
        reason = "it has custom modules" if self._files.builder else why_not_dense(config, architecture)
        self._decoder: Decoder
        if reason is None:
            self._decoder = DenseDecoder(dense_shape(config, architecture), device, dtype)
            self.decoder_choice = "dense"
        else:
            self._decoder = _through_transformers(self._files, self._context, self._options.device, dtype)
            self.decoder_choice = f"transformers: {reason}"
        self._scheduler = Scheduler(self._decoder, self._options, dtype, device)
        self._updater = Updater(self._decoder, self._transport)

    def _ready(self) -> bool:
        return self._pause is None and self._fault is None and hasattr(self, "_scheduler") and self._scheduler.busy

    def _submit(self, lives: list[Live]) -> None:
        if self._fault is not None:
            for live in lives:
                self._answer(live, self._unusable())
            return
        self._scheduler.submit([live for live in lives if live in self._futures])

    def _step(self) -> None:
        for live in self._scheduler.step():
            self._answer(live, live.error or live.result(self.name))

    def _failed(self, error: Exception) -> None:
        """A step broke off: what it left behind cannot be trusted, so everything in flight ends with the error."""
        self._fault = f"a step failed: {type(error).__name__}: {error}"
        log.error("engine %s: %s", self.name, self._fault, exc_info=error)
        failure = RunError(f"engine {self.name}: {self._fault}")
        failure.__cause__ = error
        for live in list(self._futures):
            self._answer(live, failure)

    def _pause_now(self, mode: PauseMode) -> None:
        self._pause = mode
        if mode is PauseMode.ABORT:
            for live in self._scheduler.abort():
                self._answer(live, live.result(self.name))

    def _resume_now(self) -> None:
        if self._updater.open is not None:
            raise RunError(f"engine {self.name} has an open update", mend="finish or discard it first")
        if self._updater.version is None or self._fault is not None:
            raise self._unusable()
        self._pause = None

    def _begin(self, manifest: UpdateManifest) -> None:
        if self._pause is None:
            raise RunError(f"engine {self.name} is not paused", mend="pause it before an update")
        self._updater.begin(manifest)

    def _finish(self) -> int:
        version = self._updater.finish()
        self._scheduler.version = version
        if self._pause is PauseMode.IN_PLACE:
            self._scheduler.keep_in_place()
        else:
            self._scheduler.retract()
        return version


def _through_transformers(files: ModelFiles, context: int, device: str, dtype: torch.dtype) -> Any:
    """Imported only where it is needed: transformers' model classes take seconds to load."""
    from miles_plugin_torch.engine.hf_decoder import ModelDecoder

    return ModelDecoder(files, context, device, dtype)
