"""A run beside an unrelated distribution with damaged metadata: it runs, or says whom that breaks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from miles_core.testing.installing import SitePackages

MILES = str(Path(sys.executable).parent / "miles")
RECIPE = """\
miles: 1
name: toy
plugins: [toy, reading]
model: {use: toy}
data: {use: file, path: tasks.jsonl}
schedule: {use: sync, groups_per_step: 1, group_size: 2}
generator: {use: single-turn, sampling: {max_new_tokens: 4}}
rewards: [{use: match}]
advantage: {use: toy}
loss: {use: toy}
engine: {use: ENGINE}
trainer: {use: toy}
steps: 1
"""
PLUGIN = """
from miles_core import Component, hookimpl
@hookimpl
def miles_engines():
    return [Component("reading", "reading_parts:make", "miles_core.testing.toy.engine:ToyEngineOptions")]
"""
PARTS = """
import importlib.metadata
def make(options, context):
    importlib.metadata.entry_points(group="devices")
"""


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    site = SitePackages(tmp_path / "site")
    site.plugin("reading", PLUGIN, provides=["engine.reading"])
    site.module("reading_parts", PARTS)
    (site.distribution("foreign") / "entry_points.txt").write_bytes(b"[x]\nno equals\n")
    (tmp_path / "tasks.jsonl").write_text("".join(f'{{"id": "{k}", "prompt": "p", "answer": "a"}}\n' for k in range(4)))
    for engine in ("toy", "reading"):
        (tmp_path / f"{engine}.yaml").write_text(RECIPE.replace("ENGINE", engine))
    return tmp_path


def miles(desk: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(desk / "site")}
    environment.pop("PYDANTIC_DISABLE_PLUGINS", None)
    return subprocess.run(
        [MILES, *arguments], cwd=desk, env=environment, capture_output=True, text=True, timeout=100, check=False
    )


def test_what_reads_no_foreign_metadata_plans_and_runs(desk: Path) -> None:
    assert miles(desk, "plan", "reading.yaml").returncode == 0
    done = miles(desk, "run", "toy.yaml", "--quiet")
    assert done.returncode == 0, done.stderr


def test_a_worker_that_fails_of_it_says_whom_it_is_due_to_and_the_run_is_on_record(desk: Path) -> None:
    done = miles(desk, "run", "reading.yaml", "--quiet")
    assert done.returncode == 3 and "Traceback" not in done.stderr
    place = desk / "site" / "foreign-1.0.dist-info" / "entry_points.txt"
    assert f"{place}: reading_parts.py (through importlib.metadata) reads the metadata" in done.stderr
    assert "the distribution foreign" in done.stderr and "--force-reinstall foreign" in done.stderr
    assert "engine 'reading' could not be built" in done.stderr
    [status] = desk.glob("runs/*/run.json")
    assert "the distribution foreign" in json.loads(status.read_text())["error"]
    assert "importlib/metadata" in miles(desk, "run", "reading.yaml", "--quiet", "--traceback").stderr
