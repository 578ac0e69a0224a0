"""Staleness policies: what too old means for a group whose tokens were sampled by several weight versions.

`oldest-token` judges by the oldest token: strict, and hard on long answers, which began longest ago. `mean-version`
judges by the average token. `per-token` keeps the group and lets only its young tokens teach. `resample` keeps the
young trajectories and has only the old ones made again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Several
from dataclasses import replace
from typing import Literal

import numpy as np
from pydantic import Field, PositiveInt

from miles_core.contracts.capabilities import REMAKES
from miles_core.contracts.component import BuildContext
from miles_core.contracts.options import StalenessOptions
from miles_core.contracts.planning import RecipeFacts
from miles_core.contracts.rollout import Verdict
from miles_core.types.sequence import NO_VERSION, Sequence, Span
from miles_core.types.trajectory import Group, Trajectory

OLD_TOKENS = "old_tokens"
"""Key of a trajectory's metadata: how many of its tokens were too old to teach."""


class OldestTokenOptions(StalenessOptions):
    """How old the oldest token may be."""

    cancel: bool = Field(
        default=True,
        description="cancel attempts in flight whose group is too old by what is finished of it, whatever becomes of "
        "the rest",
    )

    def card(self) -> Mapping[str, str]:
        return {
            "too old": f"a group with a token more than {self.limit} versions behind: discarded whole",
            "doomed work in flight": "is cancelled" if self.cancel else "goes on to its end",
        }


class OldestToken:
    """Current version minus the oldest version of any token; at the limit is not beyond it."""

    def __init__(self, options: OldestTokenOptions, context: BuildContext) -> None:
        self._limit, self._cancel = options.limit, options.cancel

    def judge(self, group: Group, version: int) -> Verdict:
        oldest = group.oldest_version
        if oldest is None or version - oldest <= self._limit:
            return Verdict(True)
        return Verdict(False, f"a token is {version - oldest} versions old")

    def hopeless(self, group: Group, version: int) -> str:
        """A group's oldest token only becomes older, whatever is sampled beside it."""
        oldest = group.oldest_version
        if not self._cancel or oldest is None or version - oldest <= self._limit:
            return ""
        return f"its oldest token would be {version - oldest} versions old when it could be trained"


class MeanVersionOptions(StalenessOptions):
    """How old tokens may be on average."""

    def card(self) -> Mapping[str, str]:
        return {"too old": f"a group whose tokens are on average more than {self.limit} versions behind"}


class MeanVersion:
    """Current version minus the mean version of the group's sampled tokens."""

    def __init__(self, options: MeanVersionOptions, context: BuildContext) -> None:
        self._limit = options.limit

    def judge(self, group: Group, version: int) -> Verdict:
        mean = _mean_version([span for t in group.trajectories for sequence in t.sequences for span in sequence.spans])
        if mean is None or version - mean <= self._limit:
            return Verdict(True)
        return Verdict(False, f"tokens are {version - mean:.2f} versions old on average")


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


class ResampleOptions(StalenessOptions):
    """How old a trajectory may be, and how often a group is mended."""

    by: Literal["mean", "oldest"] = Field(
        default="mean",
        description="the age of a trajectory: that of its tokens on average, or of the oldest. Attempts of a group "
        "begin together, so by the oldest they are mostly too old together; on average, short ones are first",
    )
    times: PositiveInt = Field(
        default=2, description="how often trajectories of the same draw are made again at most; then it is stale whole"
    )

    def card(self) -> Mapping[str, str]:
        how = f"made again, {self.times} times at most" if self.times > 1 else "made again, once"
        age = "whose tokens are on average" if self.by == "mean" else "with a token"
        return {
            "too old": f"a trajectory {age} more than {self.limit} versions behind: {how}; its group keeps the others. "
            "A group of which every trajectory is too old is discarded"
        }

    def check(self, facts: RecipeFacts) -> Iterable[str]:
        if REMAKES not in facts.capabilities.get("rollout", ()):
            name = ", ".join(facts.chosen.get("rollout", ()))
            yield (
                f"it has single trajectories of a group made again, which the rollout {name!r} cannot do (it does not "
                f"declare {REMAKES!r}); choose rollout groups, or the policy oldest-token"
            )


class Resample:
    """Trajectories beyond the limit are made again under the current weights, beside those that are young enough. What
    was made again too often, or has nothing to keep, is stale whole."""

    def __init__(self, options: ResampleOptions, context: BuildContext) -> None:
        self._limit, self._times = options.limit, options.times
        self._version = _mean_version if options.by == "mean" else _oldest_version

    def judge(self, group: Group, version: int) -> Verdict:
        old = [t for t in group.trajectories if self._too_old(t, version)]
        if not old:
            return Verdict(True)
        if len(old) == len(group.trajectories):
            return Verdict(False, f"every trajectory is more than {self._limit} versions old")
        if group.remade >= self._times:
            return Verdict(False, f"{len(old)} trajectories are too old, and were made again {group.remade} times")
        reason = f"{len(old)} of {len(group.trajectories)} trajectories are too old"
        return Verdict(False, reason, again=tuple(t.index for t in old))

    def _too_old(self, trajectory: Trajectory, version: int) -> bool:
        sampled_by = self._version([span for sequence in trajectory.sequences for span in sequence.spans])
        return sampled_by is not None and version - sampled_by > self._limit


def _oldest_version(spans: Several[Span]) -> float | None:
    return min((span.version for span in spans), default=None)


def _mean_version(spans: Several[Span]) -> float | None:
    """Of sampled tokens; None when there are none."""
    tokens = sum(span.stop - span.start for span in spans)
    return sum(span.version * (span.stop - span.start) for span in spans) / tokens if tokens else None


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
