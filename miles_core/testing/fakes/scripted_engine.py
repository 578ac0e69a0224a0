"""An engine that answers what a test told it to, keeps the whole contract, and misbehaves on request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Several
from itertools import cycle, islice

import numpy as np

from miles_core.contracts.engine import (
    EngineCapabilities,
    EngineStats,
    Finish,
    GenerateRequest,
    GenerateResult,
    PauseMode,
    VersionSpan,
)
from miles_core.contracts.lifecycle import Clock, Health
from miles_core.contracts.transport import Delivery, Form, TensorInfo, UpdateManifest
from miles_core.errors import RequestError, RunError, WorkerDied
from miles_core.testing.fakes.char_renderer import STOP, VOCABULARY, CharRenderer
from miles_core.testing.fakes.engine_log import Exchange, scripted_logprob

Answer = str | Several[int]
Answers = Iterable[Answer] | Callable[[GenerateRequest], Answer]


class ScriptedEngine:
    """`contracts.engine.Engine` and `EngineClient` in this process, usable without `start`.

    answers   token ids (or text, by `CharRenderer`), one answer a request in order of arrival; a generator for endless
              ones; or a function of the request. None: letters that are a pure function of the request's NoiseKey.
              An answer is cut at `max_new_tokens` or after a stop token; one that ends before gets the stop token, or,
              where the request ignores stops, begins again. A request beyond the last answer is a RunError
    version   that of the weights it starts with; None: it has none before its first update, as a real engine
    tensors   what an update must bring (names and shapes count); None: any. A delivery counts as all of them: nothing
              is read
    images    whether it declares that requests may have some; their content changes no answer
    clock     with `seconds_per_token`, how long a token takes; otherwise a token is one turn of the event loop

    `log` keeps every request and exactly what was sampled for it, apart from the arrays that were handed out.
    `deliveries` keeps what `load` was given. To misbehave: `fail_next`, `hang`, `die`, `drop_logprobs`, `go_back`.
    """

    def __init__(
        self,
        answers: Answers | None = None,
        *,
        name: str = "engine-0",
        version: int | None = 1,
        context: int = 4096,
        vocabulary: int = VOCABULARY,
        stop_token: int = STOP,
        tensors: Several[TensorInfo] | None = None,
        images: bool = False,
        clock: Clock | None = None,
        seconds_per_token: float = 0.0,
    ) -> None:
        self.name = name
        self.log: list[Exchange] = []
        self.deliveries: list[Delivery] = []
        self._answer = _answering(answers)
        self._version, self._context, self._vocabulary, self._stop = version, context, vocabulary, stop_token
        self._images = images
        self._tensors = None if tensors is None else _shapes(tensors)
        self._clock, self._seconds = clock, seconds_per_token
        self._update: UpdateManifest | None = None
        self._arrived = False
        self._mode: PauseMode | None = None
        self._changed = asyncio.Event()
        self._running: dict[Exchange, bool] = {}  # to be aborted?
        self._failures: list[tuple[Exception, int]] = []
        self._dropped = 0
        self._hanging = self._dead = False
        self._sampled = self._prompted = 0

    # The contract

    async def start(self) -> None:
        self._require_alive()

    def capabilities(self) -> EngineCapabilities:
        forms = frozenset({Form.TENSORS, Form.DISK})
        return EngineCapabilities(context=self._context, forms=forms, atomic_update=True, images=self._images)

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        self._require_alive()
        self._check(request)
        if self._version is None and self._mode is None:
            raise RunError(f"engine {self.name!r} has no usable weights", mend="publish weights to it first")
        images = tuple((span.start, span.stop, span.image.digest) for span in request.images)
        exchange = Exchange(request, tuple(request.tokens.tolist()), images=images)
        self.log.append(exchange)
        failure = self._failures.pop(0) if self._failures else None
        try:
            answer = self._plan(request, self._answer(request))
            return await self._sample(exchange, answer, failure)
        except Exception as error:
            exchange.error = f"{type(error).__name__}: {error}"
            raise

    async def pause(self, mode: PauseMode) -> None:
        self._require_alive()
        self._mode = PauseMode(mode)
        if mode is PauseMode.ABORT:
            self._running = dict.fromkeys(self._running, True)
        self._notify()

    async def resume(self) -> None:
        self._require_alive()
        if self._update is not None:
            raise RunError(f"engine {self.name!r} has an open update", mend="finish or discard it first")
        if self._version is None:
            raise RunError(f"engine {self.name!r} has no usable weights", mend="publish weights to it first")
        self._mode = None
        self._notify()

    async def begin_update(self, manifest: UpdateManifest) -> None:
        self._require_alive()
        if self._update is not None or self._mode is None:
            raise RunError(f"engine {self.name!r} is not paused, or has an update open")
        brought = _shapes(manifest.tensors)
        if self._tensors is not None and manifest.form is Form.TENSORS and brought != self._tensors:
            raise RunError(f"engine {self.name!r} has the tensors {self._tensors}, not {brought}")
        self._update, self._arrived = manifest, False

    async def load(self, delivery: Delivery) -> None:
        self._require_alive()
        if self._update is None:
            raise RunError(f"engine {self.name!r} has no update open")
        self.deliveries.append(delivery)
        self._arrived = True

    async def finish_update(self) -> int:
        self._require_alive()
        if self._update is None or not self._arrived:
            raise RunError(f"engine {self.name!r} has not received the whole update")
        self._version, self._update = self._update.version, None
        return self._version

    async def discard_update(self) -> None:
        self._update = None

    async def version(self) -> int | None:
        return self._version

    async def flush_cache(self) -> None:
        self._require_alive()

    async def stats(self) -> EngineStats:
        return EngineStats(prompt_tokens=self._prompted, sampled_tokens=self._sampled, running=len(self._running))

    async def health(self) -> Health:
        return Health(not self._dead, "it died" if self._dead else "")

    async def close(self) -> None:
        self.die()

    # Misbehaviour

    def fail_next(self, error: Exception | None = None, *, after: int = 0) -> None:
        """The next request raises `error` (default: a RunError) once `after` tokens were sampled. Calls add up."""
        self._failures.append((error or RunError(f"engine {self.name!r} was told to fail"), after))

    def hang(self, on: bool = True) -> None:
        """Sample nothing more, and answer nothing, until `hang(False)`."""
        self._hanging = on
        self._notify()

    def die(self) -> None:
        """As a killed process: what is in flight and whatever is asked later raises WorkerDied."""
        self._dead = True
        self._notify()

    def drop_logprobs(self, count: int = 1) -> None:
        """From now on the last `count` log-probs are missing from every result: a broken engine."""
        self._dropped = count

    def go_back(self, version: int) -> None:
        """Report `version` from now on, whatever was published: an engine that was restarted with old weights."""
        self._version = version

    # Sampling

    def _plan(self, request: GenerateRequest, answer: Answer) -> list[int]:
        """The tokens to sample, where nothing interrupts them."""
        tokens = CharRenderer().encode(answer).tolist() if isinstance(answer, str) else [int(each) for each in answer]
        limit, stops = request.sampling.max_new_tokens, {self._stop, *request.sampling.stop_tokens}
        if request.sampling.ignore_stop:
            return list(islice(cycle(tokens or [self._stop]), limit))
        end = next((place + 1 for place, token in enumerate(tokens) if token in stops), None)
        return ([*tokens, self._stop] if end is None else tokens[:end])[:limit]

    async def _sample(
        self, exchange: Exchange, answer: list[int], failure: tuple[Exception, int] | None
    ) -> GenerateResult:
        request = exchange.request
        self._running[exchange] = False
        finish = Finish.LENGTH
        try:
            for position, token in enumerate(answer):
                await self._turn(exchange)
                if self._running[exchange]:
                    finish = Finish.ABORT
                    break
                if failure is not None and failure[1] <= position:
                    raise failure[0]
                version = self._version or 0
                exchange.add(token, scripted_logprob(version, position, token), version)
            else:
                if failure is not None:
                    raise failure[0]
                stops = {self._stop, *request.sampling.stop_tokens}
                if not request.sampling.ignore_stop and answer[-1] in stops:
                    finish = Finish.STOP
        finally:
            del self._running[exchange]
            self._prompted += len(exchange.prompt)
            self._sampled += len(exchange.tokens)
        exchange.finish = finish
        return self._result(exchange, finish)

    async def _turn(self, exchange: Exchange) -> None:
        """Wait for the time of the next token. Pauses, hanging and death fall between tokens."""
        if self._clock is not None and self._seconds:
            await self._clock.sleep(self._seconds)
        else:
            await asyncio.sleep(0)
        while not self._dead and (self._hanging or (self._mode is not None and not self._running[exchange])):
            await self._changed.wait()
        self._require_alive()

    def _notify(self) -> None:
        """Let everything that waits look again."""
        self._changed.set()
        self._changed = asyncio.Event()

    def _result(self, exchange: Exchange, finish: Finish) -> GenerateResult:
        kept = len(exchange.logprobs) - self._dropped
        return GenerateResult(
            exchange.request.id,
            self.name,
            np.array(exchange.tokens, np.int32),
            np.array(exchange.logprobs[: max(kept, 0)], np.float32),
            _spans(exchange.versions),
            finish,
        )

    def _check(self, request: GenerateRequest) -> None:
        where = f"request {request.id!r}"
        asked = len(request.tokens) + request.sampling.max_new_tokens
        if not len(request.tokens) or request.sampling.max_new_tokens < 1:
            raise RequestError("a request has at least one token and asks for at least one", where=where)
        if asked > self._context:
            raise RequestError(f"{asked} tokens are asked for, the context is {self._context}", where=where)
        if (request.sampling.top_p, request.sampling.top_k) != (1.0, 0):
            raise RequestError("top_p and top_k ask for a truncation that a scripted engine does not do", where=where)
        if (request.tokens >= self._vocabulary).any() or (request.tokens < 0).any():
            raise RequestError(f"a token is outside the vocabulary of {self._vocabulary}", where=where)

    def _require_alive(self) -> None:
        if self._dead:
            raise WorkerDied(f"engine {self.name!r} died, or was closed")


def _answering(answers: Answers | None) -> Callable[[GenerateRequest], Answer]:
    if answers is None:
        return _letters
    if callable(answers):
        return answers
    left: Iterator[Answer] = iter(answers)

    def following(request: GenerateRequest) -> Answer:
        for answer in left:
            return answer
        raise RunError(f"the scripted engine has no answer left for request {request.id!r}", mend="script more answers")

    return following


def _letters(request: GenerateRequest) -> Answer:
    """Up to eight small letters: noise that only the NoiseKey decides."""
    noise = np.random.Generator(np.random.Philox(request.noise.digest()))
    return [int(code) for code in noise.integers(ord("a"), ord("z") + 1, size=int(noise.integers(1, 9)))]


def _shapes(tensors: Several[TensorInfo]) -> dict[str, tuple[int, ...]]:
    return {info.name: tuple(info.shape) for info in tensors}


def _spans(versions: Several[int]) -> tuple[VersionSpan, ...]:
    """Runs of equal versions."""
    edges = [place for place in range(len(versions)) if not place or versions[place] != versions[place - 1]]
    ends = [*edges[1:], len(versions)] if edges else []
    return tuple(VersionSpan(versions[start], start, stop) for start, stop in zip(edges, ends, strict=True))
