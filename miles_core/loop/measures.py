"""The driver's own metrics of a batch. docs/metrics.md says what each name means."""

from __future__ import annotations

from collections.abc import Sequence as Several
from dataclasses import dataclass

import numpy as np

from miles_core.runtime.clients import RemoteEngine
from miles_core.types.trajectory import Group, Status


def batch_metrics(groups: Several[Group]) -> dict[str, float]:
    """Rewards and lengths of the groups that were taken, failed trajectories included in the counts."""
    trajectories = [t for group in groups for t in group.trajectories]
    rewards = [t.reward for t in trajectories if t.reward is not None]
    lengths = [t.sampled_count for t in trajectories if t.sequences]
    metrics: dict[str, float] = {
        "rollout/groups": len(groups),
        "rollout/trajectories": len(trajectories),
        "rollout/tokens": sum(lengths),
        "rollout/length_mean": float(np.mean(lengths)) if lengths else 0.0,
        "rollout/length_max": max(lengths, default=0),
        "rollout/truncated": sum(t.status is Status.TRUNCATED for t in trajectories),
        "rollout/failed": sum(t.status is Status.FAILED for t in trajectories),
    }
    if rewards:
        metrics["reward/mean"] = float(np.mean(rewards))
        metrics["reward/std"] = float(np.std(rewards))
        metrics["reward/group_std"] = float(np.mean([_spread(group) for group in groups]))
    for name in dict.fromkeys(name for t in trajectories for name in t.scores):
        values = [score.value for t in trajectories if (score := t.scores.get(name)) is not None]
        if values:
            metrics[f"reward/{name}"] = float(np.mean(values))
    return metrics


@dataclass(frozen=True, slots=True)
class Prompts:
    """Prompt tokens that engines were given since they started, and those of them that they did not compute again."""

    given: int = 0
    cached: int = 0

    def since(self, before: Prompts) -> dict[str, float]:
        """The fraction that was cached between two counts, as a metric; nothing when no prompt was given."""
        given = self.given - before.given
        return {"engine/prefix_cached": (self.cached - before.cached) / given} if given else {}


async def count_prompts(engines: Several[RemoteEngine]) -> Prompts:
    stats = [await engine.stats() for engine in engines]
    return Prompts(sum(s.prompt_tokens for s in stats), sum(s.cached_tokens for s in stats))


def _spread(group: Group) -> float:
    rewards = [t.reward for t in group.trajectories if t.reward is not None]
    return float(np.std(rewards)) if rewards else 0.0
