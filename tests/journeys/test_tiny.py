"""The tiny recipe, shortened: the torch ring learns, and a killed run goes on bit for bit."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from miles_core import resume, run
from miles_core.observe import jsonl

ROOT = Path(__file__).parents[2]
RECIPE = ROOT / "recipes" / "tiny.yaml"
SHORT = ["phases[0].steps=12", "phases[1].steps=6", "checkpoint.every=4", "engine.threads=1", "trainer.threads=1"]


@pytest.fixture(autouse=True)
def at_root(monkeypatch, tmp_path):
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("MILES_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def deterministic(folder) -> list[dict]:
    records = jsonl.read(folder.metrics)
    return [{k: v for k, v in record.items() if not k.startswith("time/")} for record in records]


def test_a_killed_torch_run_continues_to_the_same_metrics(tmp_path):
    whole = run(RECIPE, set=SHORT, runs_dir=tmp_path / "whole", view="none")
    losses = [r["loss/total"] for r in whole.metrics[:12]]
    assert losses[-1] < 0.6 * losses[0]
    command = [
        sys.executable,
        "-m",
        "miles_core.cli.entry",
        "run",
        str(RECIPE),
        "--quiet",
        "--runs-dir",
        str(tmp_path / "runs"),
    ]
    process = subprocess.Popen([*command, *(f"--set={s}" for s in SHORT)], stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 180
    while not list((tmp_path / "runs").glob("*/checkpoints/step-000012")):
        assert time.monotonic() < deadline and process.poll() is None, process.stderr and process.stderr.read()
        time.sleep(0.05)
    time.sleep(0.2)
    process.kill()
    process.communicate()
    (folder,) = (tmp_path / "runs").iterdir()
    resumed = resume(folder, view="none")
    assert len(resumed.metrics) == 18
    assert deterministic(resumed.folder) == deterministic(whole.folder)
    assert resumed.summary["evaluations"] == whole.summary["evaluations"]
