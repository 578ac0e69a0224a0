"""An audit sees each change to what a run left, one at a time, and says of what it cannot read which line it is."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import miles_core
from miles_core import RequestError
from miles_core.loop.audit import audit
from miles_core.loop.evidence import Entry, Evidence
from miles_core.loop.proof import unsampled
from miles_core.observe.folder import RunFolder
from miles_core.testing import make_group
from miles_core.types.trajectory import Disposition

RECIPES = Path(__file__).parents[2] / "recipes"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """An asynchronous toy run whose audit is clean."""
    runs = tmp_path_factory.mktemp("runs")
    run = miles_core.run(RECIPES / "toy-async.yaml", runs_dir=runs, view="none", set=["steps=6", "checkpoint.every=2"])
    assert audit(run.folder).ok
    return run.folder.path


@pytest.fixture
def folder(finished, tmp_path):
    return RunFolder.open(shutil.copytree(finished, tmp_path / "run"))


def findings(folder) -> list[str]:
    return [each.what for each in audit(folder).findings]


def edit(folder, change, name="step-000003.parquet", *, sign=False) -> None:
    """Change the first trained row of a file; with `sign`, its digest as well, as somebody who knows would."""
    path = folder.trajectories / name
    table = pq.read_table(path)
    rows = table.to_pylist()
    change(next(row for row in rows if row["disposition"] == "trained"))
    pq.write_table(pa.Table.from_pylist(rows, schema=table.schema), path, compression="zstd")
    if sign:
        folder.digests.unlink()


def token(row) -> None:
    row["sequences"][0]["tokens"][-1] += 1


def logprob(row) -> None:
    sequence = row["sequences"][0]
    sequence["logprobs"][-1] -= 0.25


def engine(row) -> None:
    row["sequences"][0]["spans"][0]["engine"] = "ghost-9"


def request_id(row) -> None:
    row["sequences"][0]["spans"][0]["request"] = "g0.0/0x"


def version(row) -> None:
    sequence = row["sequences"][0]
    for span in sequence["spans"]:
        span["version"] += 1
        sequence["versions"][span["start"] : span["stop"]] = [span["version"]] * (span["stop"] - span["start"])


@pytest.mark.parametrize("change", [token, logprob, engine, request_id, version])
def test_what_no_engine_answered_is_found_even_if_the_digest_is_gone(folder, change):
    edit(folder, change, sign=True)
    assert any("was trained with what no engine answered to request" in what for what in findings(folder))


def reward(row) -> None:
    row["reward"] = 0.123


def prompt(row) -> None:
    row["sequences"][0]["tokens"][0] += 1


@pytest.mark.parametrize("change", [reward, prompt])
def test_a_file_that_the_run_did_not_write_is_found(folder, change):
    edit(folder, change)
    assert findings(folder) == ["is not the file that the run wrote: its SHA-256 is another one"]


def lines(path, change) -> None:
    path.write_text("".join(f"{line}\n" for line in change(path.read_text().splitlines())))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda kept: kept[:1], "step 5 has trajectories and no record"),
        (lambda kept: kept[:-1], "5 of its 6 steps are on record"),
        (lambda kept: [*kept, kept[-1]], "step 5 has 2 records"),
        (lambda kept: [*kept[:3], *kept[4:]], "step 2 has 0 records"),
    ],
)
def test_each_step_has_one_record(folder, change, what):
    lines(folder.metrics, change)
    assert any(what in found for found in findings(folder)), findings(folder)


def test_a_run_without_its_events_or_checkpoints_proves_nothing(folder):
    lines(folder.events, lambda kept: kept[:1])
    assert any("does not say that the run started" in what for what in findings(folder))
    shutil.rmtree(folder.checkpoints)
    assert any("no checkpoint, so nobody knows" in what for what in findings(folder))


@pytest.mark.parametrize(
    ("record", "what"),
    [({"step": 1}, "`version` is None"), ({"version": 1}, "`step`"), ({"step": 9, "version": 1, "buffer/x": "y"}, "y")],
)  # fmt: skip
def test_a_record_that_cannot_be_read_is_named_by_its_line(folder, record, what):
    lines(folder.metrics, lambda kept: [*kept, json.dumps(record)])
    with pytest.raises(RequestError, match=what) as error:
        audit(folder)
    assert "metrics.jsonl:8" in str(error.value)
    (folder.checkpoints / "step-abc").mkdir()  # is somebody else's


def test_without_a_ledger_a_run_is_audited_as_far_as_it_goes(folder):
    folder.ledger.unlink()
    folder.digests.unlink()
    assert audit(folder).ok
    folder.ledger.write_bytes(b"something else")
    with pytest.raises(RequestError, match="no ledger"):
        audit(folder)


def test_an_answer_whose_old_tokens_are_masked_is_no_finding():
    for metadata, found in (({}, 1), ({"old_tokens": 2}, 0)):
        group = make_group(["3"])
        group = group.replacing((replace(group.trajectories[0], metadata=metadata),))
        entry = Entry("f", 0, "main", group, {group.trajectories[0].id: Disposition.TRAINED})
        evidence = Evidence(None, "done", {}, (), (), ("main",), None, ledger=frozenset())
        assert len(list(unsampled(entry, evidence))) == found
