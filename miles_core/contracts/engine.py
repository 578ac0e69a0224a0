"""An engine: one inference replica. Token ids in; sampled ids, log-probs and version spans out.

The methods are those that real engines have over HTTP (docs/contracts.md maps each to SGLang's and vLLM's routes).
What one of them cannot do is a declared capability. An engine runs in its own process; its methods are coroutines.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from miles_core.contracts.lifecycle import Health
from miles_core.contracts.transport import Delivery, Form, UpdateManifest
from miles_core.types.image import ImageSpans
from miles_core.types.sampling import NoiseKey, Sampling
from miles_core.types.sequence import Array, FloatArray, TokenArray


class PauseMode(StrEnum):
    """What happens to requests in flight while weights change.

    RETRACT keeps their tokens and recomputes the KV cache under the new weights; IN_PLACE keeps the cache too;
    ABORT ends them with what they have.
    """

    RETRACT = "retract"
    IN_PLACE = "in-place"
    ABORT = "abort"


class Finish(StrEnum):
    """Why sampling ended: a stop token (included in the output), the token limit, or an abort."""

    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(frozen=True, slots=True)
class EngineCapabilities:
    """What this engine can do; the plan and the start-up checks read it.

    pause_modes    the modes that `pause` accepts
    forms          the forms of weights that `load` accepts
    truncation     whether top_p and top_k may differ from their neutral values
    noise_keyed    whether a NoiseKey alone decides the noise, whatever the batch
    atomic_update  whether the old weights survive an update that fails half-way
    routing        whether results carry the experts chosen for each token
    context        the longest sequence, prompt and output together, in tokens
    images         whether requests may have images
    """

    context: int
    pause_modes: frozenset[PauseMode] = frozenset(PauseMode)
    forms: frozenset[Form] = frozenset({Form.TENSORS})
    truncation: bool = False
    noise_keyed: bool = True
    atomic_update: bool = False
    routing: bool = False
    images: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class GenerateRequest:
    """One continuation to sample. `tokens` int32 [n], n >= 1. `affinity` pins a session to one engine of a fleet:
    requests with equal affinity go to the same engine. `images` says which of the tokens stand for which image; an
    engine that does not declare the capability `images` is never given any."""

    id: str
    tokens: TokenArray
    sampling: Sampling
    noise: NoiseKey
    affinity: str
    adapter: str | None = None
    images: ImageSpans = ()


@dataclass(frozen=True, slots=True)
class VersionSpan:
    """Output tokens [start, stop) were sampled under `version`."""

    version: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True, eq=False)
class GenerateResult:
    """What was sampled. tokens int32 [m], logprobs float32 [m] (see `Sampling`), spans that cover [0, m).

    `cached_tokens` of the prompt came from the prefix cache or from a prompt shared with another request.
    `routing` as in `Sequence.routing`, for prompt and output together.
    """

    id: str
    engine: str
    tokens: TokenArray
    logprobs: FloatArray
    spans: tuple[VersionSpan, ...]
    finish: Finish
    cached_tokens: int = 0
    routing: Array | None = None


@dataclass(frozen=True, slots=True)
class EngineStats:
    """Counters since start, for metrics: tokens, seconds of computing, and what is running now."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    sampled_tokens: int = 0
    busy_seconds: float = 0.0
    running: int = 0
    waiting: int = 0
    extra: dict[str, float] = field(default_factory=dict)


class Engine(Protocol):
    """One inference replica, as the process that hosts it sees it.

    Requests submitted in one tick of the event loop are admitted together, so that batches are reproducible.
    Between `begin_update` and `finish_update` the engine is paused and generates nothing.
    """

    async def start(self) -> None:
        """Load what can be loaded; the engine has no version until its first update."""
        ...

    def capabilities(self) -> EngineCapabilities: ...

    async def generate(self, request: GenerateRequest) -> GenerateResult:
        """Sample one continuation. Waits while the engine is paused or its memory is full.

        Raises RequestError when prompt and `max_new_tokens` exceed the context, the prompt is empty, a token id is
        outside the vocabulary, or `top_p` or `top_k` ask for a truncation that it does not declare; RunError when the
        engine has no usable weights, or is closed. Cancelling it frees what the request holds.
        """
        ...

    async def pause(self, mode: PauseMode) -> None:
        """Return when no request is being computed. Idempotent."""
        ...

    async def resume(self) -> None:
        """Go on with what was paused. Raises RunError when the weights are unusable after a failed update."""
        ...

    async def begin_update(self, manifest: UpdateManifest) -> None:
        """Open an update. Raises RunError when one is open, when not paused, or when the manifest names unknown
        tensors or other shapes: the old weights are then untouched."""
        ...

    async def load(self, delivery: Delivery) -> None:
        """Take in one part of the update. May be called several times."""
        ...

    async def finish_update(self) -> int:
        """Make the update current, flush what the old weights had cached (unless paused in place) and return the
        version now in use. Raises RunError when tensors of the manifest never arrived."""
        ...

    async def discard_update(self) -> None:
        """Forget an open update. With `atomic_update` the old weights stay in use, else there are none."""
        ...

    async def version(self) -> int | None:
        """The version in use; None when there are no usable weights."""
        ...

    async def flush_cache(self) -> None: ...

    async def stats(self) -> EngineStats: ...

    async def health(self) -> Health: ...

    async def close(self) -> None: ...


class EngineClient(Protocol):
    """What a generator may do with engines: ask for tokens. Routing over a fleet is behind it."""

    async def generate(self, request: GenerateRequest) -> GenerateResult: ...
