"""The record of a run: metrics, events, trajectories, and whoever listens.

The driver says what happened; from here it goes to the run's folder, the view on the terminal, the trackers and the
plugins' event hooks.
"""

from __future__ import annotations

import hashlib
import logging
from collections import Counter
from collections.abc import Container, Iterator, Mapping
from collections.abc import Sequence as Several
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from miles_core.contracts.lifecycle import EventSink, RealClock
from miles_core.contracts.observing import Evaluation
from miles_core.contracts.rollout import Discard
from miles_core.loop.filing import Lag, hook_facts, in_parts, metrics_of, more_facts
from miles_core.loop.trackers import WatchedTracker
from miles_core.observe.folder import RunFolder
from miles_core.observe.jsonl import JsonLines
from miles_core.observe.ledger import Ledger
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
        self.ledger = Ledger(folder.ledger)
        self.owed: list[Discard] = []  # discards that a checkpoint saw before a step could save them
        self._run = run
        self._steps = steps
        self._listeners = tuple(listeners)
        self._trackers: tuple[WatchedTracker, ...] = ()
        self._hooks = hooks
        self._step: dict[str, Any] = {}
        self._late: dict[str, float] = {}  # of evaluations that ended beside training
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

    def count(self, name: str) -> None:
        """One more of `name` in the record of the step that is finished next."""
        self._late[name] = self._late.get(name, 0.0) + 1.0

    def forget(self, evaluations: Several[Evaluation]) -> None:
        """The run went back to a checkpoint: what was not yet on record is made again. `evaluations` stay."""
        self.evaluations = list(evaluations)
        self.owed.clear()
        self._step, self._times = {}, {}
        self._late = {name: value for name, value in self._late.items() if name.endswith("/restores")}
        self._began = self.clock.now()

    @contextmanager
    def timed(self, part: str) -> Iterator[None]:
        """Seconds of a part, as `time/<part>` of the step that is finished next; several visits add up."""
        start = self.clock.now()
        try:
            yield
        finally:
            self._times[part] = self._times.get(part, 0.0) + self.clock.now() - start

    def finish_step(self) -> dict[str, float]:
        """The step is over: write its metrics and tell everyone. Returns those that are numbers."""
        now = self.clock.now()
        times = {f"time/{part}": spent for part, spent in self._times.items()}
        working = sum(self._times.get(part, 0.0) for part in ("rollout", "train", "publish"))
        rate = self._step.get("rollout/tokens", 0) / working if working > 0 else 0.0
        metrics = {**self._step, **self._late, **times, "time/step": now - self._began, "time/tokens_per_second": rate}
        if working > 0 and "train" in self._times:
            metrics["time/trainer_idle"] = self._times.get("rollout", 0.0) / working
        self._began, self._times, self._late = now, {}, {}
        self.metrics_log.append(metrics)
        numbers = {name: value for name, value in metrics.items() if isinstance(value, int | float)}
        for tracker in self._trackers:
            tracker.log(metrics["step"], numbers)
        self._tell("step_finished", {"step": metrics["step"], "metrics": MappingProxyType(numbers)})
        self.folder.write_status(
            state="running", steps_done=metrics["step"] + 1, steps=self._steps, last_metrics=numbers
        )
        return numbers

    def keep(self, groups: Several[Group], dispositions: Mapping[str, Disposition], discards: Several[Discard]) -> None:
        """Save the step's trajectories with what became of them."""
        step = self._step["step"]
        entries: list[Entry] = [(group, dispositions) for group in groups]
        entries += discarded_entries([*self.owed, *discards])
        self.owed.clear()
        self._write(f"step-{step:06d}", entries, step)

    def keep_rest(self, phase: str, discards: Several[Discard]) -> None:
        """Save what was discarded since the last step, when the data of a phase ended before another batch."""
        entries = discarded_entries([*self.owed, *discards])
        self.owed.clear()
        if entries:
            step = self._step["step"]
            stem = f"step-{step:06d}-after-{phase_mark(phase)}"
            self._write(stem, entries, step)

    def keep_evaluation(self, name: str, step: int, groups: Several[Group]) -> None:
        entries = [(g, {t.id: Disposition.EVALUATION for t in g.trajectories}) for g in groups]
        self._write(f"evaluation-{name}-{step:06d}", entries, step)

    def file(self, evaluation: Evaluation, lag: Lag | None = None, *, late: bool = False) -> None:
        """File an evaluation under the version that it measured. A `late` one ended beside training: its numbers are
        in the record of the step that is finished next."""
        lag = lag or Lag()
        for each in in_parts(evaluation):
            self.evaluations.append(each)
            numbers = metrics_of(each, lag)
            if late:
                self._late.update(numbers)
            else:
                self.measure(numbers)
            facts, extra = hook_facts(each), more_facts(each, lag)
            told = {**facts, **extra, "scores": dict(each.scores)}
            self.events_log.append({"event": "evaluated", "at": _now(), **told})
            self._tell("evaluated", facts, extra)

    def finish_late(self, step: int) -> None:
        """After the last step, of number `step`: tell the trackers what ended since."""
        late, self._late = self._late, {}
        for tracker in self._trackers if late else ():
            tracker.log(step, late)

    def close_trackers(self, outcome: str) -> None:
        """Nothing more will be logged; `outcome` is done, failed or interrupted."""
        for tracker in self._trackers:
            tracker.close(outcome)

    def close(self) -> None:
        self.metrics_log.close()
        self.events_log.close()
        self.ledger.close()

    def _write(self, stem: str, entries: Several[Entry], step: int) -> None:
        """A file of trajectories, and its digest, so that an audit sees whether it is still what was written."""
        path = write_groups(self.folder.trajectories, stem, entries, step=step)
        digests = JsonLines(self.folder.digests)
        digests.append({"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()})
        digests.close()

    def _tell(self, name: str, facts: Mapping[str, Any], extra: Mapping[str, Any] | None = None) -> None:
        for listener in self._listeners:
            listener.on(name, {**facts, **(extra or {})})
        if self._hooks is not None and name in self._hooks.events:
            self._hooks.emit(name, **{**facts, "run": self._run})


def phase_mark(phase: str) -> str:
    """A phase's name as part of a file's name."""
    return hashlib.sha256(phase.encode()).hexdigest()[:8]


def outcome_of(dispositions: Mapping[str, Disposition]) -> Disposition:
    """What became of a group, from what became of its trajectories."""
    found = Counter(dispositions.values())
    for decides in (Disposition.TRAINED, Disposition.CANCELLED):
        if decides in found:
            return decides
    return found.most_common(1)[0][0] if found else Disposition.FAILED


def discarded_entries(discards: Several[Discard]) -> list[Entry]:
    """Discards as a trajectories file holds them, in submission order, whichever came first."""
    ordered = sorted(discards, key=lambda discard: discard.group.number)
    return [(discard.group, discard.dispositions) for discard in ordered]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _portable(facts: Mapping[str, Any]) -> dict[str, Any]:
    return {name: str(value) if isinstance(value, Path) else value for name, value in facts.items()}
