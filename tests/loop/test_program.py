"""A program beside the run ends with it, as a whole group, however the run ends."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from miles_core.loop.program import run_program

CHILD = """
import subprocess, sys
sleep = ["sleep", sys.argv[1]]
subprocess.Popen(sleep)
subprocess.run(sleep)
"""
DRIVER = """
import asyncio, pathlib, sys
from miles_core.loop.program import run_program
asyncio.run(run_program([sys.executable, "-c", sys.argv[1], sys.argv[2]], pathlib.Path(sys.argv[3]), environment={}))
"""


def sleeping(mark: str) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
            ended = (process / "stat").read_text().rpartition(")")[2].split()[0] == "Z"
        except OSError:
            continue
        if words[:2] == [b"sleep", mark.encode()] and not ended:
            found.append(process.name)
    return found


def eventually(condition, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_exit_code_output_and_environment_come_through(tmp_path):
    program = [
        sys.executable,
        "-c",
        "import os, sys; print(os.environ['X']); print('bad', file=sys.stderr); sys.exit(7)",
    ]
    ended = asyncio.run(run_program(program, tmp_path, environment={"X": "seen"}))
    assert (ended.code, ended.said.strip(), ended.complained.strip()) == (7, "seen", "bad")
    assert ended.why().endswith("exited with 7: bad")


def test_what_is_said_of_a_program_is_short_whatever_it_wrote(tmp_path):
    program = [sys.executable, "-c", "import sys; sys.stderr.write('x' * 3_000_000 + 'end'); sys.exit(1)"]
    why = asyncio.run(run_program(program, tmp_path, environment={})).why()
    assert "exited with 1: [2998003 bytes before this are left out] …x" in why and why.endswith("xend")
    assert len(why) < 2300


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_signal_that_ended_it_is_told(tmp_path, number):
    program = [sys.executable, "-c", f"import os; os.kill(os.getpid(), {int(number)})"]
    ended = asyncio.run(run_program(program, tmp_path, environment={}))
    assert ended.code == -number and number.name in ended.why()


def test_cancelled_it_ends_with_all_that_it_started(tmp_path):
    async def cancel() -> None:
        task = asyncio.ensure_future(run_program([sys.executable, "-c", CHILD, "71.125"], tmp_path, environment={}))
        while len(sleeping("71.125")) < 2:
            await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(cancel())
    assert not sleeping("71.125")


def test_it_ends_when_the_driver_is_killed(tmp_path):
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, CHILD, "72.125", str(tmp_path)])
    eventually(lambda: len(sleeping("72.125")) == 2)
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    eventually(lambda: not sleeping("72.125"))


def test_one_that_ends_leaves_nothing_behind(tmp_path):
    program = [sys.executable, "-c", "import subprocess; subprocess.Popen(['sleep', '73.125'])"]
    assert asyncio.run(run_program(program, tmp_path, environment={})).code == 0
    eventually(lambda: not sleeping("73.125"), seconds=2.0)  # it is killed; nobody here can wait for its end
