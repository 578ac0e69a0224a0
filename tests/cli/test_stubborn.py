"""Plugins that would end, hold or outlive the process of a run; what the command line does about each."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

STUBBORN = """
import asyncio, os, time
from miles_core import Outcome, Score, hookimpl

class Leaves:
    def __init__(self, options, context):
        pass
    async def score(self, group):
        os._exit(0)

class Deaf:
    def __init__(self, options, context):
        pass
    async def run(self, episode):
        while True:
            try:
                await asyncio.sleep(100)
            except asyncio.CancelledError:
                pass
"""

HOLDS = """
import time
from miles_core import hookimpl

@hookimpl
def miles_step_finished(step):
    print("held", flush=True)
    time.sleep(1000)
"""

RECIPE = """
miles: 1
seed: 1
plugins: [toy]
model: {use: toy}
data: {use: toy}
schedule: {use: sync, groups_per_step: 2, group_size: 2}
generator: {use: single-turn, sampling: {max_new_tokens: 4}}
rewards: [{use: match, mode: contains}]
advantage: {use: toy}
loss: {use: toy}
engine: {use: toy}
trainer: {use: toy}
runtime: {use: in-process}
steps: 2
"""


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "toy.yaml").write_text(RECIPE)
    (tmp_path / "stubborn.py").write_text(STUBBORN)
    return tmp_path


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "miles_core.cli.entry", *arguments]


def test_leaving_the_process_is_no_success(place: Path) -> None:
    words = command("run", "toy.yaml", "--quiet", "--set", "rewards=[{use: 'stubborn:Leaves'}]")
    done = subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=120)
    assert done.returncode == 3
    assert "os._exit(0) was called" in done.stderr and "stubborn.py:" in done.stderr


def test_an_agent_that_ignores_its_end_does_not_hold_the_run(place: Path) -> None:
    sets = ["generator={use: agent, seconds: 0.5, grace_seconds: 0.2, sampling: {max_new_tokens: 4}}"]
    sets += ["agent={use: 'stubborn:Deaf'}", "rewards=[{use: agent}]", "steps=1"]
    words = command("run", "toy.yaml", "--quiet", *(word for each in sets for word in ("--set", each)))
    done = subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    assert "did not end by its deadline" in done.stderr


def test_a_listener_that_holds_the_run_does_not_hold_a_signal(place: Path) -> None:
    (place / "milesfile.py").write_text(HOLDS)
    running = subprocess.Popen(command("run", "toy.yaml", "--quiet"), cwd=place, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    while "held" not in running.stderr.readline():
        assert running.poll() is None
    began = time.monotonic()
    running.send_signal(signal.SIGTERM)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert time.monotonic() - began < 40, said


def test_a_signal_while_a_plugin_is_imported_names_it(place: Path) -> None:
    (place / "milesfile.py").write_text("import time\nprint('held', flush=True)\ntime.sleep(1000)\n")
    running = subprocess.Popen(command("plan", "toy.yaml"), cwd=place, stderr=subprocess.PIPE, text=True)
    assert running.stderr is not None
    while "held" not in running.stderr.readline():
        assert running.poll() is None
    running.send_signal(signal.SIGTERM)
    _, said = running.communicate(timeout=60)
    assert running.returncode == 130
    assert "milesfile" in said
