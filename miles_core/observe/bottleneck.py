"""In words: which half of the ring waits for the other, and whether what is thrown away is longer than what is kept."""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Several

NEGLIGIBLE = 0.05
"""An idle share below this is no bottleneck."""

LONGER = 1.2
"""Stale trajectories that are so many times as long as kept ones are worth a word."""


def bottleneck(metrics: Mapping[str, float]) -> str:
    """A sentence about the step; empty when the step did not measure how idle both halves were."""
    if "time/trainer_idle" not in metrics or "time/engine_idle" not in metrics:
        return ""
    trainer, engines = metrics["time/trainer_idle"], metrics["time/engine_idle"]
    if metrics.get("time/in_flight") == 0 and metrics.get("time/held_back") == 1:
        return f"the engines have nothing left to make (trainer idle {_percent(trainer)})"
    if max(trainer, engines) < NEGLIGIBLE:
        return f"rollout and training keep pace (trainer idle {_percent(trainer)}, engines {_percent(engines)})"
    if trainer >= engines:
        return f"rollout is the bottleneck (trainer idle {_percent(trainer)})"
    return f"training is the bottleneck (engines idle {_percent(engines)})"


def over_all(steps: Several[Mapping[str, float]]) -> str:
    """The same of a whole run: idle shares over the time of all steps but the first, which holds the start."""
    timed = [step for step in steps[1:] if {"time/trainer_idle", "time/engine_idle", "time/step"} <= step.keys()]
    seconds = sum(step["time/step"] for step in timed)
    if seconds <= 0:
        return ""
    names = ("time/trainer_idle", "time/engine_idle")
    return bottleneck({name: sum(step[name] * step["time/step"] for step in timed) / seconds for name in names})


def length_bias(steps: Several[Mapping[str, float]]) -> str:
    """A sentence when what was thrown away as too old was longer than what was kept; else empty."""
    pairs = [
        (step["buffer/length_stale_mean"], step["buffer/length_kept_mean"])
        for step in steps
        if step.get("buffer/length_stale_mean") and step.get("buffer/length_kept_mean")
    ]
    if not pairs:
        return ""
    stale, kept = (sum(column) / len(pairs) for column in zip(*pairs, strict=True))
    if stale < LONGER * kept:
        return ""
    return (
        f"stale trajectories were {stale / kept:.1f} x as long as those that were kept ({stale:.0f} against {kept:.0f} "
        "tokens): what is trained is biased towards short answers"
    )


def _percent(share: float) -> str:
    return f"{100 * max(share, 0.0):.0f} %"
