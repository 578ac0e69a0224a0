"""A request while it lives in the engine."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from miles_core import Finish, GenerateRequest, GenerateResult, VersionSpan
from miles_plugin_torch.engine.kv import Slot
from miles_plugin_torch.engine.prefill import Job
from miles_plugin_torch.engine.prefix_index import TokenArray
from miles_plugin_torch.engine.sampling import Draw


@dataclass(slots=True, eq=False)
class Live:
    """One request and what was sampled for it so far.

    `arrival` orders requests. It waits while `job` and `slot` are None, is being prefilled while only `job` is set, and
    runs while `slot` is set. `prompt` are the request's tokens, of a model that sees as keys; `shift` is added to the
    numbers of the tokens after it, which give their positions.
    """

    request: GenerateRequest
    arrival: int
    job: Job | None = None
    slot: Slot | None = None
    promised: int = 0
    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    spans: list[VersionSpan] = field(default_factory=list)
    cached_tokens: int | None = None
    finish: Finish | None = None
    error: Exception | None = None
    prompt: TokenArray = field(init=False)
    shift: int = 0

    def __post_init__(self) -> None:
        self.prompt = self.request.tokens

    def sequence(self) -> TokenArray:
        """Prompt and output so far."""
        return np.concatenate([self.prompt, np.array(self.tokens, dtype=np.int32)])

    @property
    def most_tokens(self) -> int:
        """The longest that prompt and output can become."""
        return len(self.request.tokens) + self.request.sampling.max_new_tokens

    def draw(self, digest: int) -> Draw:
        """How its next token is chosen."""
        sampling = self.request.sampling
        position = len(self.request.tokens) + len(self.tokens)
        return Draw(digest, position, sampling.temperature, sampling.top_p, sampling.top_k)

    def append(self, token: int, logprob: float, version: int) -> None:
        """Take a sampled token; `finish` says whether it was the last."""
        start = len(self.tokens)
        self.tokens.append(token)
        self.logprobs.append(logprob)
        if self.spans and self.spans[-1].version == version:
            self.spans[-1] = VersionSpan(version, self.spans[-1].start, start + 1)
        else:
            self.spans.append(VersionSpan(version, start, start + 1))
        sampling = self.request.sampling
        if token in sampling.stop_tokens and not sampling.ignore_stop:
            self.finish = Finish.STOP
        elif len(self.tokens) == sampling.max_new_tokens:
            self.finish = Finish.LENGTH

    def result(self, engine: str) -> GenerateResult:
        """What the caller gets; `finish` is set."""
        assert self.finish is not None
        return GenerateResult(
            id=self.request.id,
            engine=engine,
            tokens=np.array(self.tokens, dtype=np.int32),
            logprobs=np.array(self.logprobs, dtype=np.float32),
            spans=tuple(self.spans),
            finish=self.finish,
            cached_tokens=self.cached_tokens or 0,
        )
