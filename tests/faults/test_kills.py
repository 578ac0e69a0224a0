"""The script that kills processes, with few kills."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).with_name("kills.py")
RECORD = Path(__file__).with_name("kills.json")


def test_runs_whose_processes_are_killed_end_well(tmp_path):
    record = tmp_path / "kills.json"
    command = [sys.executable, str(SCRIPT), "--count", "3", "--seed", "7", "--record", str(record)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    figures = json.loads(record.read_text())
    assert figures["kills"] >= 3 and not figures["faults"]
    assert figures["ended_well"] == figures["all"]["runs"]
    assert sum(figures["all"]["kills"].values()) == figures["kills"]


def test_the_record_is_of_runs_that_ended_well_under_both_runtimes():
    figures = json.loads(RECORD.read_text())
    assert not figures["faults"] and figures["ended_well"] == figures["all"]["runs"]
    assert figures["local"]["runs"] and figures["ray"]["runs"] and all(figures["all"]["kills"].values())
    assert sum(figures["all"]["kills"].values()) == figures["kills"]
