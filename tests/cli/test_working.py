"""`miles run`, `resume` and `runs` on a whole ring in small: real processes, no torch."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

MILES = str(Path(sys.executable).parent / "miles")

RECIPE = """\
miles: 1
name: toy
plugins: [toy]
model: {use: toy}
data: {use: file, path: tasks.jsonl, held_out: tasks.jsonl}
schedule: {use: sync, groups_per_step: 2, group_size: 4}
generator: {use: single-turn, sampling: {max_new_tokens: 8}}
rewards: [{use: "rewards_of_mine:share_of_a"}]
advantage: {use: toy}
loss: {use: toy}
engine: {use: toy}
trainer: {use: toy}
evaluate: [{use: shared, tasks: 8}]
checkpoint: {every: 1, keep: 2}
steps: 3
"""


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    rows = [{"id": f"t{k}", "prompt": f"p{k}", "answer": "a"} for k in range(8)]
    (tmp_path / "tasks.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "rewards_of_mine.py").write_text(
        "def share_of_a(text):\n    return text.count('a') / max(len(text), 1)\n"
    )
    (tmp_path / "toy.yaml").write_text(RECIPE)
    return tmp_path


def start(desk: Path, *arguments: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": str(desk)}
    return subprocess.Popen(
        [MILES, *arguments], cwd=desk, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def miles(desk: Path, *arguments: str) -> tuple[int, str, str]:
    with start(desk, *arguments) as process:
        output, errors = process.communicate(timeout=120)
    return process.returncode, output, errors


def test_a_run_says_what_came_of_it_and_where_it_lies(desk: Path) -> None:
    code, output, errors = miles(desk, "run", "toy.yaml")
    assert code == 0, errors
    evaluation, folder, report = output.splitlines()
    assert evaluation.startswith("evaluation held-out: before 0.")
    assert "(paired, 95 %, 8 tasks)" in evaluation
    assert Path(desk, folder.split()[1], "metrics.jsonl").is_file()
    assert Path(desk, report.split()[1]).name == "report.html"
    assert [line.split(" · ")[0] for line in errors.splitlines() if line.startswith("step")] == [
        "step 1/3", "step 2/3", "step 3/3",
    ]  # fmt: skip


def test_quiet_json_is_json_alone(desk: Path) -> None:
    code, output, errors = miles(desk, "run", "toy.yaml", "--quiet", "--json", "--name", "mine", "--set", "steps=1")
    assert (code, errors) == (0, "")
    summary = json.loads(output)
    assert (summary["state"], summary["steps"]) == ("done", 1)
    code, output, errors = miles(desk, "runs", "list", "--json")
    assert (code, errors) == (0, "")
    [listed] = json.loads(output)
    assert (listed["name"], listed["state"], listed["steps_done"]) == ("mine", "done", 1)


def test_an_interrupted_run_says_what_was_saved_and_can_be_resumed_by_name(desk: Path) -> None:
    process = start(desk, "run", "toy.yaml", "--set", "engine.seconds_per_token=0.01", "--set", "steps=8", "--plain")
    assert process.stderr is not None
    with process:
        for line in process.stderr:
            if line.startswith("checkpoint after step 2 "):
                break
        time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        errors = process.stderr.read()
    assert process.returncode == 130
    assert "interrupted" in errors
    assert "miles resume" in errors
    assert "Traceback" not in errors
    assert json.loads(miles(desk, "runs", "show", "toy", "--json")[1])["state"] == "interrupted"
    code, output, errors = miles(desk, "resume", "toy", "--json")
    assert code == 0, errors
    assert (json.loads(output)["state"], json.loads(output)["steps"]) == ("done", 8)
    assert "step 8/8" in errors
    assert "step 1/8" not in errors


def test_another_plugin_set_than_the_locked_one_is_refused(desk: Path) -> None:
    assert miles(desk, "run", "toy.yaml", "--quiet", "--set", "steps=1")[0] == 0
    [lock] = desk.glob("runs/*/plugins.lock")
    content = json.loads(lock.read_text())
    content["plugins"][0]["version"] = "0.0.1"
    (desk / "other.lock").write_text(json.dumps(content))
    code, output, errors = miles(desk, "run", "toy.yaml", "--locked", "other.lock")
    assert (code, output) == (3, "")
    assert "0.0.1" in errors
    assert miles(desk, "run", "toy.yaml", "--quiet", "--set", "steps=1", "--locked", str(lock))[0] == 0


def test_a_run_that_a_plugin_fails_says_by_what_and_what_was_saved(desk: Path) -> None:
    (desk / "rewards_of_mine.py").write_text("def share_of_a(text):\n    return float('nan')\n")
    code, output, errors = miles(desk, "run", "toy.yaml", "--quiet")
    assert (code, output) == (3, "")
    assert "rewards_of_mine" in errors
    assert "run folder" in errors
    assert "Traceback" not in errors
