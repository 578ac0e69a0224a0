"""The driver's own metrics of a batch. docs/metrics.md says what each name means."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass, field

import numpy as np

from miles_core.errors import WorkerDied
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
    """Of each engine: prompt tokens that it was given since it started, and those that it did not compute again."""

    of: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def since(self, before: Prompts) -> dict[str, float]:
        """The fraction that was cached between two counts, of all engines and, where there are several, of each;
        nothing where no prompt was given."""
        grown = {name: _grown(counts, before.of.get(name, (0, 0))) for name, counts in self.of.items()}
        each = {f"engine/{name}/prefix_cached": counts for name, counts in grown.items() if len(grown) > 1}
        whole = (sum(given for given, _ in grown.values()), sum(cached for _, cached in grown.values()))
        counted = {"engine/prefix_cached": whole, **each}
        return {name: cached / given for name, (given, cached) in counted.items() if given}


async def count_prompts(engines: Several[RemoteEngine]) -> Prompts:
    """Of the engines that answer: one may die meanwhile."""
    counts: dict[str, tuple[int, int]] = {}
    for engine in engines:
        with contextlib.suppress(WorkerDied):
            stats = await engine.stats()
            counts[engine.name] = (stats.prompt_tokens, stats.cached_tokens)
    return Prompts(counts)


def _grown(now: tuple[int, int], before: tuple[int, int]) -> tuple[int, int]:
    """An engine that was started again has counted from 0."""
    return now if now[0] < before[0] or now[1] < before[1] else (now[0] - before[0], now[1] - before[1])


def _spread(group: Group) -> float:
    rewards = [t.reward for t in group.trajectories if t.reward is not None]
    return float(np.std(rewards)) if rewards else 0.0
