"""A run of two engines goes on when one of them is killed, and says what was lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from miles_core.observe import jsonl

ROOT = Path(__file__).parents[2]


def worker_of(parent: int, log: str) -> int | None:
    """The child process whose standard error is that log."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            after_name = (folder / "stat").read_text().rpartition(")")[2].split()
            if int(after_name[1]) == parent and str((folder / "fd/2").readlink()).endswith(log):
                return int(folder.name)
        except OSError:
            continue  # it ended meanwhile, or is not ours to look at
    return None


def test_a_killed_engine_moves_its_sessions_and_the_run_ends_well(tmp_path):
    settings = [
        "engine.replicas=2",
        "engine.seconds_per_token=0.03",
        "steps=3",
        "schedule.groups_per_step=2",
        "evaluate=[]",
        "name=lost",
    ]
    words = [each for setting in settings for each in ("--set", setting)]
    command = [sys.executable, "-m", "miles_core.cli.entry", "run", str(ROOT / "recipes/toy.yaml"), *words]
    run = subprocess.Popen([*command, "--runs-dir", str(tmp_path), "--quiet"], cwd=ROOT, stderr=subprocess.PIPE)
    try:
        end = time.monotonic() + 30
        while time.monotonic() < end and run.poll() is None:
            if any(len(path.read_text().splitlines()) > 1 for path in tmp_path.glob("lost-*/metrics.jsonl")):
                break
            time.sleep(0.02)
        pid = worker_of(run.pid, "engine-1.log")
        assert pid is not None, run.communicate(timeout=60)[1].decode()
        os.kill(pid, signal.SIGKILL)
        _, told = run.communicate(timeout=60)
    finally:
        run.kill()
    assert run.returncode == 0, told.decode()
    (folder,) = tmp_path.glob("lost-*")
    events = list(jsonl.read(folder / "events.jsonl"))
    (lost,) = [event for event in events if event["event"] == "engine_lost"]
    assert (lost["engine"], lost["left"]) == ("engine-1", 1) and "engine-1" in lost["why"]
    metrics = list(jsonl.read(folder / "metrics.jsonl"))
    assert len(metrics) == 3 and sum(step.get("engine/lost", 0) for step in metrics) == 1
    assert all(step["rollout/failed"] == 0 for step in metrics)
    moved = [event for event in events if event["event"] == "session_moved"]
    assert len(moved) == sum(step.get("engine/moved_sessions", 0) for step in metrics) > 0
