"""What the events of a run add up to while it goes: the few facts that a person watching wants to see."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from miles_core.observe.faults import WORDS, sentence

TIMES = ("start", "rollout", "train", "publish", "evaluate", "checkpoint")
"""The parts of a step whose seconds are shown beside each other, as `time/<part>` of the metrics."""


@dataclass(slots=True)
class Scored:
    """One evaluation as it was reported; `low` and `high` are its 95 % interval, where the reporter gave one."""

    name: str
    step: int
    version: int
    score: float | None
    skipped: str
    low: float | None
    high: float | None
    lag: int = 0

    def __str__(self) -> str:
        if self.score is None:
            return f"{self.name} skipped: {self.skipped}"
        interval = "" if self.low is None or self.high is None else f" [{self.low:.3f}, {self.high:.3f}]"
        late = f", {self.lag} versions ago" if self.lag > 1 else ", the one before" if self.lag else ""
        return f"{self.name} {self.score:.3f}{interval} at version {self.version}{late}"


@dataclass(slots=True)
class Standing:
    """How a run stands. `take` folds in one event; events and facts that it does not know change nothing."""

    steps: int
    done: int = 0
    phase: str = ""
    version: int | None = None
    activity: tuple[str, int, int] | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    rewards: list[float] = field(default_factory=list)
    evaluations: dict[str, tuple[Scored, Scored]] = field(default_factory=dict)
    saved: int | None = None
    trouble: str = ""

    def take(self, name: str, facts: Mapping[str, Any]) -> None:
        """`name` and `facts` are those of an event hook, or of `phase_started` (name) and `progress` (what, done,
        total)."""
        handler = _HANDLERS.get(name)
        if handler is not None:
            handler(self, facts)

    def shares(self) -> list[tuple[str, float]]:
        """Each part's share of the time that the last step's parts took together; none without times."""
        seconds = [(part, float(self.metrics.get(f"time/{part}", 0.0))) for part in TIMES]
        total = sum(taken for _, taken in seconds)
        return [(part, taken / total) for part, taken in seconds if taken > 0] if total > 0 else []


def _phase_started(standing: Standing, facts: Mapping[str, Any]) -> None:
    standing.phase = str(facts.get("phase", facts.get("name", "")))


def _progress(standing: Standing, facts: Mapping[str, Any]) -> None:
    standing.activity = (str(facts["what"]), int(facts["done"]), int(facts["total"]))


def _step_finished(standing: Standing, facts: Mapping[str, Any]) -> None:
    standing.metrics = facts["metrics"]
    standing.trouble = ""
    standing.done = int(facts["step"]) + 1
    standing.activity = None
    if (reward := standing.metrics.get("reward/mean")) is not None:
        standing.rewards.append(float(reward))


def _weights_published(standing: Standing, facts: Mapping[str, Any]) -> None:
    standing.version = int(facts["version"])


def _evaluated(standing: Standing, facts: Mapping[str, Any]) -> None:
    scored = Scored(
        name=str(facts["name"]),
        step=int(facts["step"]),
        version=int(facts["version"]),
        score=facts["score"],
        skipped=str(facts.get("skipped", "")),
        low=facts.get("low"),
        high=facts.get("high"),
        lag=int(facts.get("lag_versions", 0)),
    )
    first, _ = standing.evaluations.get(scored.name, (scored, scored))
    standing.evaluations[scored.name] = (first, scored)
    standing.activity = None


def _checkpoint_saved(standing: Standing, facts: Mapping[str, Any]) -> None:
    standing.saved = int(facts["step"])


def _run_started(standing: Standing, facts: Mapping[str, Any]) -> None:
    standing.done = int(facts.get("step", standing.done))


def _fault(name: str, standing: Standing, facts: Mapping[str, Any]) -> None:
    standing.trouble = sentence(name, facts)
    if name in ("run_restored", "driver_restarted"):
        standing.done = int(facts["step"])
        standing.activity = None


_HANDLERS: dict[str, Callable[[Standing, Mapping[str, Any]], None]] = {
    "run_started": _run_started,
    "phase_started": _phase_started,
    "progress": _progress,
    "step_finished": _step_finished,
    "weights_published": _weights_published,
    "evaluated": _evaluated,
    "checkpoint_saved": _checkpoint_saved,
    **{name: partial(_fault, name) for name in WORDS},
}
