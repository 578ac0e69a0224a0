"""A driver in an actor: the run of a driver here, through a SIGKILL, in a cluster without room for a second one."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from miles_plugin_ray.connection import Connection

from miles_core import Run, run

RAY = {"use": "ray", "cpus_per_engine": 0.5, "cpus_per_trainer": 0.5, "start_seconds": 120}
RECIPE: dict[str, Any] = {
    "miles": 1,
    "name": "toy",
    "seed": 1,
    "plugins": ["toy", "ray"],
    "model": {"use": "toy"},
    "data": {"use": "file", "path": "tasks.jsonl"},
    "schedule": {"use": "sync", "groups_per_step": 3, "group_size": 4},
    "generator": {"use": "single-turn", "sampling": {"max_new_tokens": 8}},
    "rewards": [{"use": "match", "mode": "contains"}],
    "advantage": {"use": "toy"},
    "loss": {"use": "toy"},
    "engine": {"use": "toy", "replicas": 2, "seconds_per_token": 0.02},
    "trainer": {"use": "toy"},
    "checkpoint": {"every": 2},
    "steps": 6,
}


def test_a_killed_driver_is_mended_and_frees_its_workers_places(
    cluster: Connection, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
):
    monkeypatch.chdir(tmp_path)
    rows = [json.dumps({"id": f"p{n}", "prompt": f"p{n}", "answer": chr(97 + n)}) for n in range(24)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(rows) + "\n")
    whole = ring(tmp_path, "whole", {"use": "in-process"}, "none")
    killing = threading.Thread(target=kill_driver, args=(tmp_path / "runs",), daemon=True)
    killing.start()
    done = ring(tmp_path, "runs", {**RAY, "driver": "worker"}, "plain")
    killing.join(5)
    assert done.summary["faults"]["driver_restarts"] == 1
    shown = capfd.readouterr().err
    assert (
        "worker 'driver' died while it was needed" in shown
        and "a new driver goes on from step 2 (restart 1 of 3)" in shown
    )
    assert numbers(done) == numbers(whole)
    audited = subprocess.run(
        [sys.executable, "-m", "miles_core.cli.entry", "audit", str(done.folder.path)], capture_output=True, text=True
    )
    assert audited.returncode == 0, audited.stdout
    assert {"driver.log", "engine-0.log", "engine-1.log", "trainer.log"} <= {
        log.name for log in done.folder.logs.iterdir()
    }
    assert soon(lambda: ray.available_resources().get("CPU") == 2)  # nothing is reserved any more


def ring(folder: Path, runs: str, runtime: dict[str, Any], view: Any) -> Run:
    recipe = folder / "recipe.yaml"
    recipe.write_text(yaml.safe_dump({**RECIPE, "runtime": runtime}, sort_keys=False))
    return run(recipe, runs_dir=folder / runs, view=view)


def numbers(done: Run) -> list[dict[str, Any]]:
    timed = ("time/", "engine/")
    return [{k: v for k, v in record.items() if not k.startswith(timed)} for record in done.metrics]


def kill_driver(runs: Path) -> None:
    """After the first checkpoint; `.driver` in the run's folder holds the driver's process id."""
    checkpoint = soon(lambda: next(iter(runs.glob("[!.]*/checkpoints/step-000002")), None))
    os.kill(int((checkpoint.parents[1] / ".driver").read_text()), signal.SIGKILL)


def soon(condition: Any, seconds: float = 120.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)
    return found
