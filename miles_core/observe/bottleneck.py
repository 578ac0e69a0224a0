"""Which half of the ring the other one waits for, in words."""

from __future__ import annotations

from collections.abc import Mapping

NEGLIGIBLE = 0.05
"""An idle share below this is no bottleneck."""


def bottleneck(metrics: Mapping[str, float]) -> str:
    """A sentence about the step; empty when the step did not measure how idle both halves were."""
    if "time/trainer_idle" not in metrics or "time/engine_idle" not in metrics:
        return ""
    trainer, engines = metrics["time/trainer_idle"], metrics["time/engine_idle"]
    if max(trainer, engines) < NEGLIGIBLE:
        return f"rollout and training keep pace (trainer idle {_percent(trainer)}, engines {_percent(engines)})"
    if trainer >= engines:
        return f"rollout is the bottleneck (trainer idle {_percent(trainer)})"
    return f"training is the bottleneck (engines idle {_percent(engines)})"


def _percent(share: float) -> str:
    return f"{100 * max(share, 0.0):.0f} %"
