"""What a scripted engine did, kept apart from what it handed out: a test compares the two."""

from __future__ import annotations

from dataclasses import dataclass

from miles_core.contracts.engine import Finish, GenerateRequest


@dataclass(slots=True, eq=False)
class Exchange:
    """One request and exactly what the engine sampled for it, token by token, in immutable copies.

    `prompt` is a copy of the request's tokens; `finish` is None while it runs and when it ended by `error` (the
    exception's class and text) or was cancelled. `images` are (start, stop, digest) of those that the request had.
    """

    request: GenerateRequest
    prompt: tuple[int, ...]
    tokens: tuple[int, ...] = ()
    logprobs: tuple[float, ...] = ()
    versions: tuple[int, ...] = ()
    finish: Finish | None = None
    error: str = ""
    images: tuple[tuple[int, int, str], ...] = ()

    def add(self, token: int, logprob: float, version: int) -> None:
        self.tokens += (token,)
        self.logprobs += (logprob,)
        self.versions += (version,)


def scripted_logprob(version: int, position: int, token: int) -> float:
    """The log-prob that a scripted engine reports for the output token at a position: between -1 and 0, another one
    for each version, exact in float32."""
    return -((version * 37 + position * 11 + token * 5) % 127 + 1) / 128
