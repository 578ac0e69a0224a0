"""Whether what a run left is still what it wrote down when it happened: the digest of each file of trajectories, the
ledger of the engines' answers, one record for each step. Each finding is what is wrong, and where."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Iterator, Set

from miles_core.loop.evidence import Entry, Evidence
from miles_core.observe.ledger import seals_of
from miles_core.rollout.staleness import OLD_TOKENS
from miles_core.types.trajectory import Disposition

Found = Iterator[tuple[str, str]]


def changed_files(evidence: Evidence) -> Found:
    """Files of trajectories that are not what the run wrote."""
    for name, digest in sorted(evidence.digests.items()):
        path = evidence.folder.trajectories / name
        if path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() != digest:
            yield "is not the file that the run wrote: its SHA-256 is another one", name


def unsampled(entry: Entry, evidence: Evidence) -> Found:
    """Trained tokens that no engine answered with, in this request, under these versions, with these log-probs."""
    if evidence.ledger is None:
        return
    for trajectory in entry.group.trajectories:
        if entry.dispositions[trajectory.id] is not Disposition.TRAINED or trajectory.metadata.get(OLD_TOKENS):
            continue  # of an answer whose old tokens are masked, the rest alone is on record
        for sequence in trajectory.sequences:
            for request, seal in seals_of(sequence).items():
                if seal not in evidence.ledger:
                    what = f"trajectory {trajectory.id} was trained with what no engine answered to request {request!r}"
                    yield what, entry.where


def missing_records(evidence: Evidence, on_file: Set[int]) -> Found:
    """Steps without a record of their own, or with two. `on_file` are the steps that have files of trajectories."""
    counts = Counter(record["step"] for record in evidence.metrics)
    for step in range(max([*counts, -1]) + 1):
        if counts[step] != 1:
            yield f"step {step} has {counts[step]} records, expected one", "metrics.jsonl"
    done = evidence.state == "done"
    for step in sorted(on_file - counts.keys()):
        if done or step > len(counts):  # the one that a run was at when it ended has none yet
            yield f"step {step} has trajectories and no record", "metrics.jsonl"
    notes = {event.get("text") for event in evidence.events if event["event"] == "note"}
    if done and len(counts) < evidence.steps and "the data ended" not in notes:
        yield f"the run is done, and {len(counts)} of its {evidence.steps} steps are on record", "metrics.jsonl"
    begun = any(event["event"] == "run_started" for event in evidence.events)
    if (done or counts) and not begun:
        yield "does not say that the run started", "events.jsonl"
    if done and evidence.checkpoint is None:
        yield "the run is done and has no checkpoint, so nobody knows what was submitted", "checkpoints"
