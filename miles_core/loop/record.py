"""The record of a run: metrics, events, trajectories, and whoever listens.

The driver says what happened; from here it goes to the run's folder, the view on the terminal, the trackers and the
plugins' event hooks.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Callable, Container, Coroutine, Iterator, Mapping
from collections.abc import Sequence as Several
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from miles_core.contracts.lifecycle import EventSink, RealClock
from miles_core.contracts.observing import Evaluation, Evaluator
from miles_core.contracts.rollout import Data, Discard
from miles_core.loop.trackers import WatchedTracker
from miles_core.observe.folder import RunFolder
from miles_core.observe.jsonl import JsonLines
from miles_core.observe.statistics import mean_and_interval
from miles_core.observe.trajectories import Entry, write_groups
from miles_core.types.trajectory import Disposition, Group

log = logging.getLogger(__name__)


class Listener(Protocol):
    """The terminal's view, or anything else that wants every event."""

    def on(self, name: str, facts: Mapping[str, Any]) -> None: ...


class Hooks(EventSink, Protocol):
    """Tells the plugins' event hooks of `events`, the names that there are."""

    @property
    def events(self) -> Container[str]: ...


class Recorder:
    """Is the run's EventSink. `hooks` calls the plugins' event hooks, isolated from each other."""

    def __init__(
        self,
        folder: RunFolder,
        *,
        run: str,
        steps: int,
        listeners: Several[Listener] = (),
        hooks: Hooks | None = None,
        evaluations: Several[Evaluation] = (),
    ) -> None:
        self.folder = folder
        self.clock = RealClock()
        self.evaluations = list(evaluations)
        self.metrics_log = JsonLines(folder.metrics)
        self.events_log = JsonLines(folder.events)
        self.owed: list[Discard] = []  # discards that a checkpoint saw before a step could save them
        self._run = run
        self._steps = steps
        self._listeners = tuple(listeners)
        self._trackers: tuple[WatchedTracker, ...] = ()
        self._hooks = hooks
        self._step: dict[str, Any] = {}
        self._times: dict[str, float] = {}
        self._began = self.clock.now()

    def follow(self, trackers: Several[WatchedTracker]) -> None:
        """From now on metrics go to these as well."""
        self._trackers = tuple(trackers)

    def tracker_uses(self) -> list[dict[str, Any]]:
        """Calls, failures and seconds of each tracker (JSON data)."""
        return [tracker.to_json() for tracker in self._trackers]

    def emit(self, name: str, /, **facts: Any) -> None:
        """Something happened: to the events file, the view and the event hooks."""
        self.events_log.append({"event": name, "at": _now(), **_portable(facts)})
        self._tell(name, facts)

    def progress(self, what: str, done: int, total: int) -> None:
        """Long work goes on: for the view alone."""
        for listener in self._listeners:
            listener.on("progress", {"what": what, "done": done, "total": total})

    def note(self, text: str, **facts: Any) -> None:
        """A sentence worth keeping."""
        log.warning("%s %s", text, facts or "")
        self.emit("note", text=text, **facts)

    def begin_step(self, step: int, phase: str, version: int) -> None:
        self._step = {"step": step, "phase": phase, "version": version}

    def measure(self, *metrics: Mapping[str, float]) -> None:
        for some in metrics:
            self._step.update(some)

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Seconds of a part, as `time/<part>` of the step that is finished next; several visits add up."""
        start = self.clock.now()
        try:
            yield
        finally:
            self._times[part] = self._times.get(part, 0.0) + self.clock.now() - start

    def finish_step(self) -> None:
        """The step is over: write its metrics and tell everyone."""
        now = self.clock.now()
        times = {f"time/{part}": spent for part, spent in self._times.items()}
        working = sum(self._times.get(part, 0.0) for part in ("rollout", "train", "publish"))
        rate = self._step.get("rollout/tokens", 0) / working if working > 0 else 0.0
        metrics = {**self._step, **times, "time/step": now - self._began, "time/tokens_per_second": rate}
        if working > 0 and "train" in self._times:
            metrics["time/trainer_idle"] = self._times.get("rollout", 0.0) / working
        self._began, self._times = now, {}
        self.metrics_log.append(metrics)
        numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
        for tracker in self._trackers:
            tracker.log(metrics["step"], numbers)
        self._tell("step_finished", {"step": metrics["step"], "metrics": MappingProxyType(numbers)})
        self.folder.write_status(
            state="running", steps_done=metrics["step"] + 1, steps=self._steps, last_metrics=numbers
        )

    def keep(self, groups: Several[Group], dispositions: Mapping[str, Disposition], discards: Several[Discard]) -> None:
        """Save the step's trajectories with what became of them."""
        step = self._step["step"]
        entries: list[Entry] = [(group, dispositions) for group in groups]
        entries += discarded_entries([*self.owed, *discards])
        self.owed.clear()
        write_groups(self.folder.trajectories, f"step-{step:06d}", entries, step=step)

    def keep_rest(self, phase: str, discards: Several[Discard]) -> None:
        """Save what was discarded since the last step, when the data of a phase ended before another batch."""
        entries = discarded_entries([*self.owed, *discards])
        self.owed.clear()
        if entries:
            step = self._step["step"]
            stem = f"step-{step:06d}-after-{phase_mark(phase)}"
            write_groups(self.folder.trajectories, stem, entries, step=step)

    def keep_evaluation(self, name: str, step: int, groups: Several[Group]) -> None:
        entries = [(g, {t.id: Disposition.EVALUATION for t in g.trajectories}) for g in groups]
        write_groups(self.folder.trajectories, f"evaluation-{name}-{step:06d}", entries, step=step)

    def has_evaluated(self, name: str, step: int) -> bool:
        """Whether an evaluation was made after so many batches."""
        return any((each.name, each.step) == (name, step) for each in self.evaluations)

    def file(self, evaluation: Evaluation) -> None:
        """File an evaluation under the version that it measured."""
        self.evaluations.append(evaluation)
        estimate = mean_and_interval(evaluation.scores.values()) if evaluation.scores else None
        facts = {
            "name": evaluation.name,
            "step": evaluation.step,
            "version": evaluation.version,
            "score": None if estimate is None else estimate.mean,
            "skipped": evaluation.skipped,
        }
        extra = {
            "low": None if estimate is None else estimate.low,
            "high": None if estimate is None else estimate.high,
        }
        if estimate is not None:
            self.measure({f"evaluation/{evaluation.name}/score": estimate.mean})
        self.events_log.append(
            {"event": "evaluated", "at": _now(), **facts, **extra, "scores": dict(evaluation.scores)}
        )
        self._tell("evaluated", facts, extra)

    def counted(
        self,
        score: Callable[[Group], Coroutine[Any, Any, Group]],
        what: str,
        evaluator: Evaluator,
        data: Data,
    ) -> Callable[[Group], Coroutine[Any, Any, Group]]:
        """`score`, telling the view how many groups have been scored."""
        total = len(evaluator.tasks(data))
        done = 0

        async def counting(group: Group) -> Group:
            nonlocal done
            scored = await score(group)
            done += 1
            self.progress(what, done, total)
            return scored

        return counting

    def close_trackers(self, outcome: str) -> None:
        """Nothing more will be logged; `outcome` is done, failed or interrupted."""
        for tracker in self._trackers:
            tracker.close(outcome)

    def close(self) -> None:
        self.metrics_log.close()
        self.events_log.close()

    def _tell(self, name: str, facts: Mapping[str, Any], extra: Mapping[str, Any] | None = None) -> None:
        for listener in self._listeners:
            listener.on(name, {**facts, **(extra or {})})
        if self._hooks is not None and name in self._hooks.events:
            self._hooks.emit(name, **{**facts, "run": self._run})


def phase_mark(phase: str) -> str:
    """A phase's name as part of a file's name."""
    return hashlib.sha256(phase.encode()).hexdigest()[:8]


def discarded_entries(discards: Several[Discard]) -> list[Entry]:
    """Discards as a trajectories file holds them, in submission order, whichever came first."""
    ordered = sorted(discards, key=lambda discard: discard.group.number)
    return [(d.group, {t.id: d.disposition for t in d.group.trajectories}) for d in ordered]


def read_evaluations(events: Several[Mapping[str, Any]]) -> list[Evaluation]:
    """The evaluations that an events file tells of."""
    return [
        Evaluation(e["name"], e["version"], e["step"], e.get("scores", {}), e.get("skipped", ""))
        for e in events
        if e["event"] == "evaluated"
    ]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _portable(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in facts.items()}
