"""An audit of a run from what it left: nothing was lost, nothing was trained twice, and every trained token is what an
engine answered, in that place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from miles_core.loop.evidence import Entry, Evidence, Pending, read_evidence
from miles_core.loop.mended import Mended
from miles_core.loop.proof import changed_files, missing_records, unsampled
from miles_core.observe.folder import RunFolder
from miles_core.observe.images import ImageFolder
from miles_core.types.trajectory import Disposition, Status

SHOWN = 20
"""Findings of one kind that are listed; the rest is counted."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, and where."""

    what: str
    where: str


@dataclass(slots=True)
class PhaseAudit:
    """Where the groups of a phase went. `unsettled`: submitted after the last checkpoint of a run that has not ended;
    resuming it makes them again."""

    name: str
    submitted: int = 0
    groups: Counter[str] = field(default_factory=Counter)
    buffered: int = 0
    in_flight: int = 0
    unsettled: int = 0


@dataclass(slots=True)
class Audit:
    """The result. `ok` when there is no finding."""

    run: str
    state: str
    phases: list[PhaseAudit]
    trajectories: Counter[str] = field(default_factory=Counter)
    trained_tokens: int = 0
    old_tokens: int = 0
    images: int = 0
    staleness: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.findings

    def as_data(self) -> dict[str, Any]:
        """JSON data."""
        return {
            "run": self.run,
            "state": self.state,
            "ok": self.ok,
            "phases": [
                {
                    "name": phase.name,
                    "submitted": phase.submitted,
                    "groups": dict(phase.groups),
                    "buffered": phase.buffered,
                    "in_flight": phase.in_flight,
                    "unsettled": phase.unsettled,
                }
                for phase in self.phases
            ],
            "trajectories": dict(self.trajectories),
            "trained_tokens": self.trained_tokens,
            "masked_old_tokens": self.old_tokens,
            "trained_images": self.images,
            "staleness_max": self.staleness,
            "findings": [{"what": each.what, "where": each.where} for each in self.findings],
        }


def audit(folder: RunFolder) -> Audit:
    """Look at everything that the run left. Raises RequestError when it cannot be read."""
    evidence = read_evidence(folder)
    result = Audit(folder.path.name, evidence.state, [PhaseAudit(name) for name in evidence.phases])
    seen = _Seen(evidence)
    images = _Images(folder)
    findings: dict[str, list[Finding]] = {}

    def note(kind: str, found: Iterator[Finding]) -> None:
        findings.setdefault(kind, []).extend(found)

    for entry in evidence.entries():
        note("record", seen.look(entry))
        if entry.phase not in seen.repeated:
            note("sampled", (Finding(*found) for found in unsampled(entry, evidence)))
        note("tokens", _tokens(entry, evidence, seen.version_of.get(entry.step), result))
        note("images", images.look(entry))
        result.trajectories.update(disposition.value for disposition in entry.dispositions.values())
    result.images = len(images.seen)
    for phase in result.phases:
        note("groups", _balance(phase, seen, evidence))
    note("mended", seen.handed_on(evidence.state == "done"))
    note("counts", _counters(seen, evidence))
    note("files", (Finding(*found) for found in changed_files(evidence)))
    note("records", (Finding(*found) for found in missing_records(evidence, seen.steps)))
    note("versions", _versions(evidence))
    for kind, found in findings.items():
        more = len(found) - SHOWN
        result.findings += found[:SHOWN]
        result.findings += [Finding(f"and {more} more like these", kind)] if more > 0 else []
    return result


class _Seen:
    """What is on record so far."""

    def __init__(self, evidence: Evidence) -> None:
        self.version_of: dict[int, int] = {record["step"]: record["version"] for record in evidence.metrics}
        self.outcomes: dict[str, dict[int, Entry]] = {name: {} for name in evidence.phases}
        self.steps: set[int] = set()
        self.by_step: dict[int, Counter[str]] = {}
        self.mended = Mended()
        self._size = {name: _group_size(evidence, name) for name in evidence.phases}
        self.repeated = {name for name in evidence.phases if _rollout(evidence, name) == "saved"}
        self._trajectories: dict[tuple[str, str], tuple[str, int]] = {}

    def look(self, entry: Entry) -> Iterator[Finding]:
        known = self.outcomes[entry.phase]
        if "-after-" not in entry.file:  # what was left when the data ended
            self.steps.add(entry.step)
        self.by_step.setdefault(entry.step, Counter())[entry.outcome.value] += 1
        if entry.phase in self.repeated:
            known[len(known)] = _light(entry)
            return
        if (before := known.get(entry.group.number)) is not None:
            both = f"{before.outcome.value} in {before.file} and {entry.outcome.value} in {entry.file}"
            twice = {before.outcome, entry.outcome} == {Disposition.TRAINED}
            yield Finding("was trained twice" if twice else f"ended twice: {both}", entry.where)
        known[entry.group.number] = _light(entry)
        size = self._size[entry.phase]
        if size is not None and not self.mended.look(entry, size):
            yield Finding(f"has {len(entry.group.trajectories)} trajectories on record, of {size} made", entry.where)
        for trajectory in entry.group.trajectories:
            here = (entry.file, entry.group.number)
            file, number = self._trajectories.setdefault((entry.phase, trajectory.id), here)
            if (file, number) != here:
                what = f"trajectory {trajectory.id} has a disposition in {file}, group g{number} too"
                yield Finding(what, entry.where)

    def handed_on(self, ended: bool) -> Iterator[Finding]:
        """What a group kept when some of its trajectories were made again is in the next group of its draw."""
        submitted: dict[tuple[str, str, int], list[int]] = {}
        for phase, known in self.outcomes.items():
            for number, entry in known.items():
                submitted.setdefault((phase, entry.group.task.id, entry.group.draw), []).append(number)
        return self.mended.findings(submitted, ended, Finding)


class _Images:
    """The images that trained sequences name: each is there, and is what its name says. Each is looked at once."""

    def __init__(self, folder: RunFolder) -> None:
        self.seen: dict[str, str] = {}
        self._folder = ImageFolder(folder.trajectories)

    def look(self, entry: Entry) -> Iterator[Finding]:
        for trajectory in entry.group.trajectories:
            if entry.dispositions[trajectory.id] is not Disposition.TRAINED:
                continue
            for digest in {span.image.digest for sequence in trajectory.sequences for span in sequence.images}:
                if digest not in self.seen:
                    self.seen[digest] = self._folder.fault(digest)
                if fault := self.seen[digest]:
                    what = f"trajectory {trajectory.id} was trained with image {digest[:12]}: {fault}"
                    yield Finding(what, entry.where)


def _light(entry: Entry) -> Entry:
    """Without the tokens, so that an audit of a long run fits in memory."""
    return Entry(entry.file, entry.step, entry.phase, entry.group.replacing(()), entry.dispositions)


def _rollout(evidence: Evidence, phase: str) -> str:
    """The rollout's name. One that is `saved` repeats groups under the numbers of an earlier run."""
    return str((evidence.section(phase, "rollout") or {}).get("use")).rpartition(":")[2]


def _group_size(evidence: Evidence, phase: str) -> int | None:
    """How many trajectories a group has; None when it is not ours to know."""
    if _rollout(evidence, phase) != "groups":
        return None
    size = (evidence.section(phase, "schedule") or {}).get("group_size")
    return size if isinstance(size, int) else None


def _tokens(entry: Entry, evidence: Evidence, version: int | None, result: Audit) -> Iterator[Finding]:
    """Trained tokens have log-probs, and versions that the run had published and the recipe allows."""
    policy = evidence.section(entry.phase, "staleness") or {}
    judged = evidence.section(entry.phase, "advantage") is not None
    for trajectory in entry.group.trajectories:
        if entry.dispositions[trajectory.id] is not Disposition.TRAINED:
            continue
        if trajectory.status in (Status.FAILED, Status.ABORTED):
            yield Finding(f"trajectory {trajectory.id} was trained although it {trajectory.status.value}", entry.where)
        result.trained_tokens += trajectory.sampled_count
        result.old_tokens += int(trajectory.metadata.get("old_tokens", 0))
        if judged and any(sequence.logprobs is None for sequence in trajectory.sequences):
            yield Finding(f"trajectory {trajectory.id} was trained without log-probs", entry.where)
        newest = max((span.version for s in trajectory.sequences for span in s.spans), default=0)
        if version is not None and newest > version:
            what = f"trajectory {trajectory.id} has tokens of version {newest}, trained when {version} was current"
            yield Finding(what, entry.where)
    trained = entry.group.replacing(
        tuple(t for t in entry.group.trajectories if entry.dispositions[t.id] is Disposition.TRAINED)
    )
    if version is None or (oldest := trained.oldest_version) is None:
        return
    result.staleness = max(result.staleness, version - oldest)
    limit = policy.get("limit")
    by_oldest = policy.get("use") in ("oldest-token", "per-token")
    if by_oldest and isinstance(limit, int) and version - oldest > limit:
        yield Finding(f"has trained tokens {version - oldest} versions old, the recipe allows {limit}", entry.where)


def _balance(phase: PhaseAudit, seen: _Seen, evidence: Evidence) -> Iterator[Finding]:
    """Submitted = on record, by class + in the buffer + in flight, group by group."""
    recorded = seen.outcomes[phase.name]
    pending = evidence.pending.get(phase.name, Pending())
    phase.groups.update(entry.outcome.value for entry in recorded.values())
    ended = evidence.state == "done"
    open_numbers = (pending.in_flight | pending.waiting | pending.owed) - recorded.keys()
    phase.submitted = max([pending.submitted or 0, *(number + 1 for number in recorded)])
    phase.buffered = len(pending.waiting - recorded.keys())
    phase.in_flight = len(pending.in_flight - recorded.keys())
    if pending.submitted is None:
        return  # its rollout numbers groups by a rule of its own
    for number in range(phase.submitted):
        if number in recorded or (number in open_numbers and not ended):
            continue
        if number >= pending.submitted and not ended:
            phase.unsettled += 1
        elif number in open_numbers:
            yield Finding("was submitted and never ended, though the run did", f"phase {phase.name}, group g{number}")
        else:
            yield Finding("was submitted and is nowhere on record", f"phase {phase.name}, group g{number}")
    for number in sorted(recorded.keys() & (pending.in_flight | pending.waiting)):
        if recorded[number].step < (evidence.checkpoint or 0):
            yield Finding("is on record, and the checkpoint would train it again", recorded[number].where)


def _counters(seen: _Seen, evidence: Evidence) -> Iterator[Finding]:
    """The counts in the metrics are those on record."""
    for record in evidence.metrics:
        counted: Counter[str] = Counter()
        for name, value in record.items():
            if name.startswith("buffer/filtered/"):
                counted["filtered"] += int(value)
            elif name in ("buffer/aborted", "buffer/cancelled", "buffer/stale", "buffer/failed"):
                counted[name.removeprefix("buffer/")] += int(value)
        found = seen.by_step.get(record["step"], Counter())
        for name in ("aborted", "cancelled", "stale", "failed", "filtered"):
            if counted[name] != found[name]:
                what = f"counted {counted[name]} groups as {name}, on record are {found[name]}"
                yield Finding(what, f"metrics.jsonl, step {record['step']}")


def _versions(evidence: Evidence) -> Iterator[Finding]:
    """Weight versions never go back."""
    current = 0
    for record in evidence.metrics:
        if record["version"] < current:
            what = f"version {record['version']} after version {current}"
            yield Finding(what, f"metrics.jsonl, step {record['step']}")
        current = max(current, record["version"])
    published = 0
    for event in evidence.events:
        if event["event"] == "weights_published":
            if event["version"] < published:
                yield Finding(f"version {event['version']} after version {published}", f"events.jsonl, {event['at']}")
            published = max(published, event["version"])


def in_words(result: Audit) -> list[str]:
    """Lines for a person."""
    lines = []
    for phase in result.phases:
        classes = [name.value for name in Disposition if phase.groups[name.value]]
        parts = [f"{phase.groups[name]} {name}" for name in classes]
        rest = (("buffered", phase.buffered), ("in flight", phase.in_flight), ("unsettled", phase.unsettled))
        parts += [f"{number} {what}" for what, number in rest if number]
        lines.append(f"phase {phase.name}: {phase.submitted} groups submitted = {' + '.join(parts) or '0'}")
    kinds: Mapping[str, int] = result.trajectories
    lines.append("trajectories: " + (", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())) or "none"))
    old = f", {result.old_tokens} older ones masked" if result.old_tokens else ""
    lines.append(f"tokens trained: {result.trained_tokens}, at most {result.staleness} versions old{old}")
    if result.images:
        lines.append(f"images trained with: {result.images}, each looked at")
    return lines
