"""What one request has sampled so far."""

from dataclasses import dataclass, field

import numpy as np
from miles_core import Finish, GenerateResult, VersionSpan


@dataclass
class Output:
    """Tokens with their log-probs, and the weight version that sampled each."""

    tokens: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)
    versions: list[int] = field(default_factory=list)

    def add(self, token: int, logprob: float, version: int) -> None:
        self.tokens.append(token)
        self.logprobs.append(logprob)
        self.versions.append(version)

    def result(self, id: str, engine: str, finish: Finish) -> GenerateResult:
        tokens, logprobs = np.array(self.tokens, np.int32), np.array(self.logprobs, np.float32)
        return GenerateResult(id, engine, tokens, logprobs, tuple(self._spans()), finish)

    def _spans(self) -> list[VersionSpan]:
        """Runs of equal versions: a request that lives through an update has several."""
        spans: list[VersionSpan] = []
        for place, version in enumerate(self.versions):
            if spans and spans[-1].version == version:
                spans[-1] = VersionSpan(version, spans[-1].start, place + 1)
            else:
                spans.append(VersionSpan(version, place, place + 1))
        return spans
