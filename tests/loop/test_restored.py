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

from miles_core import WorkerDied, run
from miles_core.loop.audit import audit
from miles_core.observe import jsonl
from miles_core.observe.folder import RunFolder
from miles_core.observe.trajectories import read_groups

DRIVER = (
    "import sys, miles_core; miles_core.run(sys.argv[1], runs_dir=__import__('pathlib').Path('runs'), view='plain')"
)


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


def ended(process: subprocess.Popen[str], bench) -> tuple[RunFolder, str]:
    """The run's folder and what it said, once it came to its end by itself with nothing lost or trained twice."""
    _, told = process.communicate(timeout=90)
    assert process.returncode == 0, told
    (path,) = bench.runs.iterdir()
    result = audit(RunFolder(path))
    assert result.ok and result.state == "done", result.findings
    return RunFolder(path), told


def test_killed_workers_take_nothing_with_them(bench):
    """The trainer before the first checkpoint (of step 2), the trainer after it, and the only engine."""
    recipe = {"engine": {"use": "toy", "seconds_per_token": 0.015}, "steps": 8}
    whole = run(bench.recipe(**recipe), runs_dir=bench.folder / "whole", view="none")
    process = start(bench.recipe(**recipe, faults={"restart_delay": 0.05}))
    kill_when(process, bench, "trainer", lambda: events_of(bench, "phase_started"))
    kill_when(process, bench, "trainer", lambda: len(events_of(bench, "run_restored")) == 1 and steps_of(bench) >= 3)
    kill_when(process, bench, "engine-0", lambda: len(events_of(bench, "run_restored")) == 2 and steps_of(bench) >= 4)
    folder, told = ended(process, bench)
    assert deterministic(folder) == deterministic(whole.folder)
    assert identity(folder) == identity(whole.folder)
    restored = [event for event in jsonl.read(folder.events) if event["event"] == "run_restored"]
    assert [(event["lost"], event["step"], event["restore"]) for event in restored] == [
        ("the trainer", 0, 1),
        ("the trainer", 2, 1),
    ]
    assert all("trainer" in event["why"] for event in restored)
    assert sum(record.get("trainer/restores", 0) for record in jsonl.read(folder.metrics)) <= 2
    assert sum(record.get("engine/restarts", 0) for record in jsonl.read(folder.metrics)) == 1
    status = json.loads(folder.status.read_text())
    assert status["evaluations"] == whole.summary["evaluations"]
    assert status["faults"] == {"engines_lost": 1, "engine_restarts": 1, "restores": 2, "driver_restarts": 0}
    assert "the trainer died" in told and "goes on from step 2" in told and "engine-0 serves version" in told
    assert "2 restores" in folder.report.read_text()


def test_an_interrupt_while_an_engine_is_awaited_is_clean(bench):
    recipe = bench.recipe(engine={"use": "toy", "seconds_per_token": 0.01}, steps=500, faults={"restart_delay": 50})
    process = start(recipe)
    kill_when(process, bench, "engine-0", lambda: steps_of(bench) >= 1)
    when(lambda: events_of(bench, "waiting"))
    workers = [int(child) for child in Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()]
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=30)
    assert process.returncode != 0 and "KeyboardInterrupt" in told
    assert "requests wait for engine-0 (to be started again)" in told or "requests wait for engine-0 (starting)" in told
    assert workers and not any(Path(f"/proc/{pid}").exists() for pid in workers)
    (path,) = bench.runs.iterdir()
    assert json.loads((path / "run.json").read_text())["state"] == "interrupted"


def test_when_restores_are_spent_the_run_ends_and_says_so(bench):
    (bench.folder / "mortal.py").write_text(
        "import os\nfrom miles_core.testing.toy.trainer import ToyTrainer, ToyTrainerOptions\n"
        "class Mortal(ToyTrainer):\n"
        "    Options = ToyTrainerOptions\n"
        "    def step(self, batch):\n"
        "        if batch.step == 1: os._exit(9)\n"
        "        return super().step(batch)\n"
    )
    faults = {"restores": 1, "restart_delay": 0.01}
    with pytest.raises(WorkerDied, match=r"trainer.*exit status 9") as caught:
        run(bench.recipe(trainer={"use": "mortal:Mortal"}, faults=faults), runs_dir=bench.runs, view="none")
    assert any("went back to step 0 1 time" in note for note in caught.value.__notes__)
    assert len(events_of(bench, "run_restored")) == 1
