"""What a run left of each group, read back for an audit: one line for each time that a group was put on record."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from miles_core.errors import RequestError
from miles_core.loop.record import outcome_of, phase_mark
from miles_core.observe import jsonl
from miles_core.observe.folder import RunFolder
from miles_core.observe.ledger import read_ledger
from miles_core.observe.trajectories import files, read_file
from miles_core.types.trajectory import Disposition, Group


@dataclass(frozen=True, slots=True)
class Entry:
    """A group on record: in which file, for which step of which phase, and what became of it."""

    file: str
    step: int
    phase: str
    group: Group
    dispositions: Mapping[str, Disposition]

    @property
    def outcome(self) -> Disposition:
        """The group's class."""
        return outcome_of(self.dispositions)

    @property
    def where(self) -> str:
        return f"trajectories/{self.file}, group {self.group.id}"


@dataclass(frozen=True, slots=True)
class Pending:
    """A phase at the last checkpoint: `submitted` groups (None: its rollout does not say), and those of them that were
    in flight, waited in the buffer, or were discarded and not on record."""

    submitted: int | None = None
    in_flight: frozenset[int] = frozenset()
    waiting: frozenset[int] = frozenset()
    owed: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that an audit looks at. `checkpoint` is the step of the last one, None without."""

    folder: RunFolder
    state: str
    recipe: Mapping[str, Any]
    metrics: tuple[Mapping[str, Any], ...]
    events: tuple[Mapping[str, Any], ...]
    phases: tuple[str, ...]
    checkpoint: int | None
    pending: Mapping[str, Pending] = field(default_factory=dict)
    ledger: frozenset[bytes] | None = None
    digests: Mapping[str, str] = field(default_factory=dict)

    @property
    def steps(self) -> int:
        """How many the recipe asks for."""
        phases = self.recipe.get("phases") or (self.recipe,)
        return sum(int(phase.get("steps") or 0) for phase in phases)

    def section(self, phase: str, name: str) -> Any:
        """A section of the resolved recipe as one phase has it."""
        own: Mapping[str, Any] = next((p for p in self.recipe.get("phases") or () if p["name"] == phase), {})
        return own[name] if name in own else self.recipe.get(name)

    def entries(self) -> Iterator[Entry]:
        """Everything on record but evaluations, file by file in the order of steps."""
        for path, step in files(self.folder.trajectories):
            for group, dispositions in read_file(path, pixels=False):
                if step is not None and Disposition.EVALUATION not in dispositions.values():
                    yield Entry(path.name, step, self._phase_of(path.stem, step), group, dispositions)

    def _phase_of(self, stem: str, step: int) -> str:
        _, _, ended = stem.partition("-after-")
        for name in self.phases:
            if ended == phase_mark(name):
                return name
        begun = [e["name"] for e in self.events if e["event"] == "phase_started" and e["step"] <= step]
        return str(begun[-1]) if begun else self.phases[0]


def read_evidence(folder: RunFolder) -> Evidence:
    """Raises RequestError naming what is missing or damaged."""
    status = folder.read_status()
    try:
        recipe = yaml.safe_load(folder.recipe.read_text())
        phases = tuple(phase["name"] for phase in recipe.get("phases") or ()) or ("main",)
    except (OSError, yaml.YAMLError, TypeError, KeyError, AttributeError) as error:
        raise RequestError(f"cannot be read: {error}", where=str(folder.recipe)) from error
    step, pending = _last_checkpoint(folder.checkpoints, phases)
    return Evidence(
        folder=folder,
        state=status["state"],
        recipe=recipe,
        metrics=_records(folder.metrics, {"step": int, "version": int}),
        events=_records(folder.events, {"event": str, "at": str}),
        phases=phases,
        checkpoint=step,
        pending=pending,
        ledger=read_ledger(folder.ledger),
        digests=_digests(folder.digests),
    )


def _records(path: Path, keys: Mapping[str, type]) -> tuple[dict[str, Any], ...]:
    """Records that have these keys. Raises RequestError with the line of one that has not."""
    records = jsonl.read(path)
    for line, record in enumerate(records, 2):
        numbers = {key: float for key in record if key.startswith("buffer/")}
        for key, kind in {**keys, **numbers}.items():
            value = record.get(key)
            if not isinstance(value, int | float if kind is float else kind):
                raise RequestError(f"`{key}` is {value!r:.40}, expected {kind.__name__}", where=f"{path}:{line}")
    return tuple(records)


def _digests(path: Path) -> dict[str, str]:
    """The SHA-256 of each file of trajectories, by its name, as it was last written; empty where none were kept."""
    if not path.exists():
        return {}
    try:
        return {str(line["file"]): str(line["sha256"]) for line in jsonl.read(path)}
    except KeyError as error:
        raise RequestError(f"a line has no {error}", where=str(path)) from error


def _last_checkpoint(folder: Path, phases: Several[str]) -> tuple[int | None, dict[str, Pending]]:
    places = sorted(path for path in folder.glob("step-*") if path.name.removeprefix("step-").isdigit())
    if not places:
        return None, {}
    place = places[-1]
    try:
        state = json.loads((place / "state.json").read_text())
        owed = _numbers(place / "discarded.parquet")
        current = _phase_at(state["phases"])
        return state["step"], {
            name: _pending(part, owed if index == current else frozenset())
            for index, (name, part) in enumerate(zip(phases, state["phases"], strict=True))
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise RequestError(
            f"the checkpoint cannot be read: {type(error).__name__}: {error}", where=str(place)
        ) from error


def _phase_at(phases: Several[Mapping[str, Any]]) -> int:
    """The last phase that took a batch: discards that are not on record are its own."""
    begun = [index for index, part in enumerate(phases) if part.get("account", {}).get("batches")]
    return begun[-1] if begun else 0


def _pending(part: Mapping[str, Any], owed: frozenset[int]) -> Pending:
    rollout = part["rollout"]
    while "next_number" not in rollout and isinstance(rollout.get("inner"), Mapping):
        rollout = rollout["inner"]  # middleware with a state of its own
    return Pending(
        submitted=rollout.get("next_number"),
        in_flight=frozenset(each["number"] for each in rollout.get("in_flight", ())),
        waiting=frozenset(part["buffer"].get("waiting", ())),
        owed=owed,
    )


def _numbers(path: Path) -> frozenset[int]:
    return frozenset(group.number for group, _ in read_file(path, pixels=False)) if path.exists() else frozenset()
