"""How fast a run's engines decoded: what a step of one request takes (a), and what each other one beside it adds (b).

Summed over the tokens of a training step, attempt-seconds = a * tokens + b * tokens * others, where `others` is how
many decoded beside a token on average. Attempts in flight, integrated over time, are the left side. Where a batch's
attempts begin together, how long the round took says more: a * longest + b * (tokens - longest).
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Sequence as Several
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
Metrics = Mapping[str, Any]
Equation = tuple[float, float, float]
"""What a and b are multiplied with, and the seconds that come of it."""

LOWEST = 1e-9
"""Seconds: an engine that takes no time has no speed."""

_IN_ROUNDS = ("sync", "one-step-off")
_WAITED = 0.05  # of a step: the trainer waited, so that the round's end was seen


def decoding(
    steps: Several[Metrics], lengths: Mapping[int, list[int]], engines: int, schedule: str
) -> dict[str, float]:
    """Values of `Service`. `lengths` are sampled tokens of the trajectories that left the ring in a step. What
    computing prompts costs is part of what a token costs here, so it costs nothing by itself."""
    attempts: list[Equation] = []
    lasted: list[Equation] = []
    for step in steps:
        made = lengths.get(step["step"] + (schedule == "one-step-off"))  # which makes the next batch meanwhile
        if made and schedule in _IN_ROUNDS:
            attempts.append(_in_a_round(step, made, engines))
            lasted += _round(step, made, engines, schedule)
        elif made:
            attempts.append(_in_a_stream(step, made, engines))
    alone, neighbour = weights(*np.array([*_scaled(attempts), *_scaled(lasted)]).T)
    return {
        "seconds_per_token": max(alone, LOWEST),
        "seconds_per_neighbour": neighbour,
        "slots": 1_000_000,
        "prefill_tokens_per_second": 1e12,
    }


def weights(first: FloatArray, second: FloatArray, result: FloatArray) -> tuple[float, float]:
    """a, b >= 0 such that a * first + b * second comes closest to the result."""
    solved, *_ = np.linalg.lstsq(np.stack([first, second], axis=1), result, rcond=None)
    if (solved >= 0).all():
        return float(solved[0]), float(solved[1])
    alone = [max(0.0, float(column @ result) / max(float(column @ column), LOWEST)) for column in (first, second)]
    errors = [float(((weight * col - result) ** 2).sum()) for weight, col in zip(alone, (first, second), strict=True)]
    return (alone[0], 0.0) if errors[0] <= errors[1] else (0.0, alone[1])


def _scaled(equations: Several[Equation]) -> list[Equation]:
    """Relative to their mean result, so that equations of different kinds weigh the same."""
    mean = sum(result for *_, result in equations) / len(equations) if equations else 1.0
    return [(first / mean, second / mean, result / mean) for first, second, result in equations]


def _attempt_seconds(step: Metrics) -> float:
    """Attempts were averaged over the step, without an evaluation at its end."""
    return float(step["time/in_flight"] * (step["time/step"] - step.get("time/evaluate", 0.0)))


def _in_a_round(step: Metrics, made: list[int], engines: int) -> Equation:
    longest_first = np.sort(np.array(made, float))[::-1]
    tokens = float(longest_first.sum())
    beside = float((longest_first * (2 * np.arange(len(made)) + 1)).sum()) / tokens
    return tokens, tokens * max(beside / engines - 1, 0.0), _attempt_seconds(step)


def _round(step: Metrics, made: list[int], engines: int, schedule: str) -> list[Equation]:
    """What a round says that the trainer waited for."""
    if step["time/rollout"] <= _WAITED * step["time/step"]:
        return []
    lasted = step["time/rollout"] + (step["time/train"] if schedule == "one-step-off" else 0.0)
    return [(float(max(made)), max(sum(made) / engines - max(made), 0.0), lasted)]


def _in_a_stream(step: Metrics, made: list[int], engines: int) -> Equation:
    """Slots are filled as they become free: all of them, but for the times when nothing more may be started and what is
    in flight runs out, evenly from all slots to none."""
    tokens, idle = float(sum(made)), min(step["time/engine_idle"], 0.5)
    slots = step["time/in_flight"] / max(1 - step["time/engine_idle"], LOWEST)
    beside = slots * (1 - 4 / 3 * idle) / (1 - idle)
    stood = slots * step["time/publish"]  # in flight, while nothing was decoded
    return tokens, tokens * max(beside / engines - 1, 0.0), max(_attempt_seconds(step) - stood, LOWEST)
