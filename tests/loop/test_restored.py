"""A run goes on by itself when processes that it needs are killed: engines are started again, and a dead trainer sends
it back to its last checkpoint."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from miles_core import run
from miles_core.loop.audit import audit
from miles_core.observe import jsonl
from miles_core.observe.folder import RunFolder
from miles_core.observe.trajectories import read_groups

DRIVER = (
    "import sys, miles_core; miles_core.run(sys.argv[1], runs_dir=__import__('pathlib').Path('runs'), view='plain')"
)
SLOW = {"use": "toy", "seconds_per_token": 0.01}
QUICK = {"restart_delay": 0.05}


def start(recipe: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", DRIVER, str(recipe)], stderr=subprocess.PIPE, text=True)


def worker_of(parent: int, name: str) -> int | None:
    """The newest child process whose standard error is the log of that name."""
    found = None
    for child in Path(f"/proc/{parent}/task/{parent}/children").read_text().split():
        try:
            if Path(f"/proc/{child}/fd/2").readlink().name == f"{name}.log":
                found = int(child)
        except OSError:
            continue  # it ended meanwhile
    return found


def when(condition, seconds: float = 60.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError("waited too long")


def events_of(bench, name: str) -> list[dict]:
    paths = list(bench.runs.glob("*/events.jsonl"))
    return [event for event in jsonl.read(paths[0]) if event["event"] == name] if paths else []


def steps_of(bench) -> int:
    paths = list(bench.runs.glob("*/metrics.jsonl"))
    return len(jsonl.read(paths[0])) if paths else 0


def kill_when(process, bench, who: str, condition, how: signal.Signals = signal.SIGKILL) -> None:
    when(condition)
    pid = when(lambda: worker_of(process.pid, who))
    os.kill(pid, how)


def deterministic(folder: RunFolder) -> list[dict]:
    faults = ("time/", "engine/", "trainer/restores")
    return [{k: v for k, v in record.items() if not k.startswith(faults)} for record in jsonl.read(folder.metrics)]


def identity(folder: RunFolder) -> list[tuple]:
    return [
        (step, g.id, g.draw, tuple((t.id, t.text, t.reward, dispositions[t.id]) for t in g.trajectories))
        for step, g, dispositions in read_groups(folder.trajectories)
    ]


def ended(process: subprocess.Popen[str], bench) -> RunFolder:
    """The run's folder, once it came to its end by itself, with nothing lost and nothing trained twice."""
    _, told = process.communicate(timeout=90)
    assert process.returncode == 0, told
    (path,) = bench.runs.iterdir()
    result = audit(RunFolder(path))
    assert result.ok and result.state == "done", result.findings
    return RunFolder(path)


@pytest.mark.parametrize("after", [0, 3])
def test_a_killed_trainer_takes_nothing_with_it(bench, after):
    """Before the first checkpoint (of step 2) and after it."""
    whole = run(bench.recipe(engine=SLOW), runs_dir=bench.folder / "whole", view="none")
    process = start(bench.recipe(engine=SLOW, faults=QUICK))
    kill_when(process, bench, "trainer", lambda: events_of(bench, "phase_started") and steps_of(bench) >= after)
    folder = ended(process, bench)
    assert deterministic(folder) == deterministic(whole.folder)
    assert identity(folder) == identity(whole.folder)
    (restored,) = [e for e in jsonl.read(folder.events) if e["event"] == "run_restored"]
    assert (
        restored["lost"] == "the trainer" and "trainer" in restored["why"] and restored["step"] == (2 if after else 0)
    )
    assert sum(record.get("trainer/restores", 0) for record in jsonl.read(folder.metrics)) == 1
    status = json.loads(folder.status.read_text())
    assert status["evaluations"] == whole.summary["evaluations"]
