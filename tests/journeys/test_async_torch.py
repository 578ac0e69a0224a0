"""The asynchronous ring with the torch engine and trainer: weights are published while requests are in flight."""

from __future__ import annotations

import json

import pytest

from miles_core import run
from miles_core.loop.audit import audit
from miles_core.observe.trajectories import read_groups

pytest.importorskip("torch")
pytest.importorskip("miles_plugin_torch")


@pytest.mark.parametrize("pause", ["retract", "in-place", "abort"])
def test_requests_that_span_an_update(tmp_path, monkeypatch, pause):
    monkeypatch.chdir(tmp_path)
    rows = (json.dumps({"id": f"t{i}", "prompt": f"max {i % 10} {(7 * i) % 10}=", "answer": "1"}) for i in range(200))
    (tmp_path / "tasks.jsonl").write_text("\n".join(rows) + "\n")
    recipe = {
        "miles": 1,
        "name": "async-torch",
        "seed": 1,
        "plugins": ["torch", "algorithms", "huggingface"],
        "model": {
            "use": "scratch", "hidden": 32, "layers": 2, "heads": 2, "intermediate": 64, "context": 128,
            "characters": " =0123456789amx",
        },
        "data": {"use": "file", "path": "tasks.jsonl"},
        "schedule": {"use": "async", "groups_per_step": 2, "group_size": 4, "max_staleness": 3, "pause": pause},
        "generator": {"use": "single-turn", "sampling": {"max_new_tokens": 96, "ignore_stop": True}},
        "rewards": [{"use": "match", "mode": "contains"}],
        "advantage": {"use": "grpo"},
        "loss": {"use": "policy"},
        "correction": {"use": "tis"},
        "engine": {"use": "torch"},
        "trainer": {"use": "torch", "learning_rate": 1e-3},
        "runtime": {"use": "in-process"},
        "steps": 6,
    }  # fmt: skip
    done = run(recipe, runs_dir=tmp_path / "runs", view="none")
    result = audit(done.folder)
    assert result.findings == []
    assert result.phases[0].groups["trained"] == 12
    spanning = [
        sequence
        for _, group, _ in read_groups(done.folder.trajectories)
        for trajectory in group.trajectories
        for sequence in trajectory.sequences
        if len({span.version for span in sequence.spans}) > 1
    ]
    if pause == "abort":
        assert not spanning
    else:
        assert spanning
        assert result.staleness >= 1
    assert all(record["correction/mismatch"] < 1 for record in done.metrics)
