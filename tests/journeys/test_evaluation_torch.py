"""Every mode of evaluation beside an asynchronous torch run: each score is of the version that it is filed under."""

from __future__ import annotations

import json

import pytest

from miles_core import run
from miles_core.observe import jsonl
from miles_core.observe.trajectories import read_groups
from miles_core.types.trajectory import Disposition

pytest.importorskip("torch")
pytest.importorskip("miles_plugin_torch")

PROGRAM = """
import json, os, pathlib
from safetensors.numpy import load_file
weights = pathlib.Path(os.environ["MILES_WEIGHTS"])
config = json.loads((weights / "config.json").read_text())
tensors = load_file(weights / "model.safetensors")
print(json.dumps({"score": float(sum(abs(t).sum() for t in tensors.values())), "n": config["num_hidden_layers"]}))
"""


def test_each_score_is_of_its_version(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [json.dumps({"id": f"t{i}", "prompt": f"max {i % 10} {(7 * i) % 10}=", "answer": "1"}) for i in range(60)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(rows[:50]) + "\n")
    (tmp_path / "held_out.jsonl").write_text("\n".join(rows[50:]) + "\n")
    measured = {"every": 1, "tasks": 4, "attempts": 2, "temperature": 1.0, "max_new_tokens": 24}
    recipe = {
        "miles": 1,
        "name": "evaluations",
        "seed": 1,
        "plugins": ["torch", "algorithms", "huggingface"],
        "model": {
            "use": "scratch", "hidden": 32, "layers": 2, "heads": 2, "intermediate": 64, "context": 128,
            "characters": " =0123456789amx",
        },
        "data": {"use": "file", "path": "tasks.jsonl", "held_out": "held_out.jsonl"},
        "schedule": {"use": "async", "groups_per_step": 2, "group_size": 4, "max_staleness": 3},
        "generator": {"use": "single-turn", "sampling": {"max_new_tokens": 48, "ignore_stop": True}},
        "rewards": [{"use": "match", "mode": "contains"}],
        "advantage": {"use": "grpo"},
        "loss": {"use": "policy"},
        "correction": {"use": "tis"},
        "engine": {"use": "torch", "threads": 1},
        "trainer": {"use": "torch", "learning_rate": 1e-2, "threads": 1},
        "evaluate": [
            {"use": "shared", **measured},
            {"use": "fleet", "queue": 9, **measured},
            {"use": "command", "every": 2, "queue": 9, "run": ["python", "-c", PROGRAM]},
        ],
        "runtime": {"use": "in-process"},
        "steps": 4,
    }  # fmt: skip
    done = run(recipe, runs_dir=tmp_path / "runs", view="none")
    points = [event for event in jsonl.read(done.folder.events) if event["event"] == "evaluated"]
    assert not [point["skipped"] for point in points if point["skipped"]]
    versions = {name: [p["version"] for p in points if p["name"] == name] for name in ("held-out", "fleet", "command")}
    assert {name: sorted(found) for name, found in versions.items()} == {
        "held-out": [1, 2, 3, 4, 5],
        "fleet": [1, 2, 3, 4, 5],
        "command": [1, 3, 5],
    }
    for step, group, dispositions in read_groups(done.folder.trajectories):
        if Disposition.EVALUATION in dispositions.values() and step is not None:
            spans = [span for t in group.trajectories for s in t.sequences for span in s.spans]
            assert {span.version for span in spans} == {step + 1}  # mixed-version fraction: 0
    sums = [p["score"] for p in points if p["name"] == "command"]
    assert len(set(sums)) == 3 and all(p["n"] == 2 for p in points if p["name"] == "command")
