"""Staleness policies: what too old means for a group whose tokens were sampled by several weight versions.

`oldest-token` judges by the oldest token: strict, and hard on long answers, which began longest ago. `mean-version`
judges by the average token. `per-token` keeps the group and lets only its young tokens teach.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from miles_core.contracts.component import BuildContext
from miles_core.contracts.options import StalenessOptions
from miles_core.contracts.rollout import Verdict
from miles_core.types.sequence import NO_VERSION, Sequence
from miles_core.types.trajectory import Group, Trajectory

OLD_TOKENS = "old_tokens"
"""Key of a trajectory's metadata: how many of its tokens were too old to teach."""


class OldestTokenOptions(StalenessOptions):
    """How old the oldest token may be."""

    def card(self) -> Mapping[str, str]:
        return {"too old": f"a group with a token more than {self.limit} versions behind: discarded whole"}


class OldestToken:
    """Current version minus the oldest version of any token; at the limit is not beyond it."""

    def __init__(self, options: OldestTokenOptions, context: BuildContext) -> None:
        self._limit = options.limit

    def judge(self, group: Group, version: int) -> Verdict:
        oldest = group.oldest_version
        if oldest is None or version - oldest <= self._limit:
            return Verdict(True)
        return Verdict(False, f"a token is {version - oldest} versions old")


class MeanVersionOptions(StalenessOptions):
    """How old tokens may be on average."""

    def card(self) -> Mapping[str, str]:
        return {"too old": f"a group whose tokens are on average more than {self.limit} versions behind"}


class MeanVersion:
    """Current version minus the mean version of the group's sampled tokens."""

    def __init__(self, options: MeanVersionOptions, context: BuildContext) -> None:
        self._limit = options.limit

    def judge(self, group: Group, version: int) -> Verdict:
        spans = [span for t in group.trajectories for sequence in t.sequences for span in sequence.spans]
        tokens = sum(span.stop - span.start for span in spans)
        if not tokens:
            return Verdict(True)
        age = version - sum(span.version * (span.stop - span.start) for span in spans) / tokens
        if age <= self._limit:
            return Verdict(True)
        return Verdict(False, f"tokens are {age:.2f} versions old on average")


class PerTokenOptions(StalenessOptions):
    """How old a token may be to teach."""

    def card(self) -> Mapping[str, str]:
        return {"too old": f"a token more than {self.limit} versions behind: it is context, and teaches nothing"}


class PerToken:
    """Tokens beyond the limit become context that nobody learns from. A trajectory of which none is left keeps its
    place and its reward until it is left out of the batch; a group of which none is left is stale."""

    def __init__(self, options: PerTokenOptions, context: BuildContext) -> None:
        self._limit = options.limit

    def judge(self, group: Group, version: int) -> Verdict:
        oldest = group.oldest_version
        if oldest is None or version - oldest <= self._limit:
            return Verdict(True)
        young = group.replacing(tuple(_without_old(t, version - self._limit) for t in group.trajectories))
        if any(trajectory.sampled_count for trajectory in young.trajectories):
            return Verdict(True, instead=young)
        return Verdict(False, f"every token is more than {self._limit} versions old")


def _without_old(trajectory: Trajectory, oldest: int) -> Trajectory:
    """The trajectory with what was sampled before version `oldest` masked."""
    sequences = tuple(_masked(sequence, oldest) for sequence in trajectory.sequences)
    old = trajectory.sampled_count - sum(sequence.sampled_count for sequence in sequences)
    if not old:
        return trajectory
    return replace(trajectory, sequences=sequences, metadata={**trajectory.metadata, OLD_TOKENS: old})


def _masked(sequence: Sequence, oldest: int) -> Sequence:
    if sequence.logprobs is None or not any(span.version < oldest for span in sequence.spans):
        return sequence
    young = sequence.sampled & (sequence.versions >= oldest)
    return replace(
        sequence,
        sampled=young,
        logprobs=np.where(young, sequence.logprobs, np.float32(0)).astype(np.float32),
        versions=np.where(young, sequence.versions, NO_VERSION).astype(np.int32),
        spans=tuple(span for span in sequence.spans if span.version >= oldest),
    )
