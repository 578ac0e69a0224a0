"""Sequences that weigh nothing: real ones by their spans and lengths, whose arrays are made only when somebody asks."""

from __future__ import annotations

from collections.abc import Sequence as Several
from typing import Any

import numpy as np

from miles_core.types.sequence import Sequence, Span

ENGINE = "simulated"


class LightSequence(Sequence):
    """A sequence of a prompt and what was sampled after it. Few policies look at single tokens; for those that do, an
    array is computed at each look and not kept: a million trajectories have no room for theirs."""

    __slots__ = ("_prompt", "_sampled")

    def __getattr__(self, name: str) -> Any:  # of slots that are not filled
        make = _MAKERS.get(name)
        if make is None:
            raise AttributeError(name)
        return make(self)

    def __len__(self) -> int:
        return int(self._prompt + self._sampled)

    @property
    def sampled_count(self) -> int:
        return int(self._sampled)

    @property
    def prompt_length(self) -> int:
        return int(self._prompt)


def light_sequence(prompt: int, pieces: Several[tuple[int, int]]) -> LightSequence:
    """A prompt of so many tokens, and the pieces (tokens, weight version) that were sampled after it, in order."""
    spans, end = [], prompt
    for tokens, version in pieces:
        spans.append(Span(end, end + tokens, version, ENGINE, ENGINE))
        end += tokens
    made = LightSequence.__new__(LightSequence)
    facts = {"spans": tuple(spans), "routing": None, "images": (), "_prompt": prompt, "_sampled": end - prompt}
    for name, value in facts.items():
        object.__setattr__(made, name, value)
    return made


def _tokens(sequence: Sequence) -> Any:
    return np.zeros(len(sequence), np.int32)


def _sampled(sequence: Sequence) -> Any:
    return np.arange(len(sequence)) >= sequence.prompt_length


def _logprobs(sequence: Sequence) -> Any:
    return np.zeros(len(sequence), np.float32)


def _versions(sequence: Sequence) -> Any:
    versions = np.zeros(len(sequence), np.int32)
    for span in sequence.spans:
        versions[span.start : span.stop] = span.version
    return versions


def _own_prompt(sequence: Sequence) -> int:
    """Of one that was made from arrays, such as one with some tokens masked: all that does not teach."""
    return len(sequence.tokens) - _own_sampled(sequence)


def _own_sampled(sequence: Sequence) -> int:
    return int(sequence.sampled.sum())


_MAKERS = {
    "tokens": _tokens,
    "sampled": _sampled,
    "logprobs": _logprobs,
    "versions": _versions,
    "_prompt": _own_prompt,
    "_sampled": _own_sampled,
}
