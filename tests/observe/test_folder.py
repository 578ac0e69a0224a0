from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from miles_core.errors import RequestError
from miles_core.observe.folder import RunFolder
from miles_core.observe.runs import find_run, list_runs

HOLD = """
import sys, time
from pathlib import Path
from miles_core.observe.folder import RunFolder
folder = RunFolder.open(Path(sys.argv[1]))
with folder.claimed():
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_new_folder_has_its_parts_and_a_status(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path / "runs", "quick-start")
    assert folder.path.parent == tmp_path / "runs"
    assert folder.path.name.startswith("quick-start-")
    for part in (folder.trajectories, folder.checkpoints, folder.logs):
        assert part.is_dir()
    assert json.loads(folder.status.read_text())["format"] == "miles.run"
    assert [path for path in folder.path.parent.iterdir() if path != folder.path] == []


def test_two_runs_of_one_name_are_two_folders(tmp_path: Path) -> None:
    assert RunFolder.create(tmp_path, "a").path != RunFolder.create(tmp_path, "a").path


@pytest.mark.parametrize("name", ["", "../up", "a/b", ".hidden", "a b"])
def test_a_name_that_is_no_folder_name_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(RequestError, match="name"):
        RunFolder.create(tmp_path, name)
    assert list(tmp_path.iterdir()) == []


def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RequestError, match="--runs-dir"):
        RunFolder.create(tmp_path / "file" / "runs", "a")


def test_opening_what_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match=r"run\.json"):
        RunFolder.open(tmp_path)
    (tmp_path / "run.json").write_text('{"format": "miles.run", "version": 99}')
    with pytest.raises(RequestError, match="version 99"):
        RunFolder.open(tmp_path)


def test_status_facts_are_merged(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "a")
    folder.write_status(steps=12, steps_done=1)
    folder.write_status(steps_done=2, state="done")
    status = folder.read_status()
    assert (status["name"], status["steps"], status["steps_done"], status["state"]) == ("a", 12, 2, "done")
    with pytest.raises(ValueError, match="state"):
        folder.write_status(state="fine")


def test_a_running_run_that_nobody_holds_is_dead(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "a")
    with folder.claimed():
        assert folder.read_status()["state"] == "running"
        assert folder.holder() == os.getpid()
    assert folder.read_status()["state"] == "dead"
    assert folder.holder() is None


def test_another_process_is_refused_by_the_holders_pid_until_it_is_killed(tmp_path: Path) -> None:
    folder = RunFolder.create(tmp_path, "a")
    with subprocess.Popen([sys.executable, "-c", HOLD, str(folder.path)], stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert folder.read_status()["state"] == "running"
        with pytest.raises(RequestError, match=f"process id {other.pid}"), folder.claimed():
            raise AssertionError("two processes hold one folder")
        os.kill(other.pid, signal.SIGKILL)
    with folder.claimed():
        assert folder.holder() == os.getpid()


def test_runs_are_found_by_path_name_and_beginning(tmp_path: Path) -> None:
    first, second = RunFolder.create(tmp_path, "tiny"), RunFolder.create(tmp_path, "quickstart")
    latest = RunFolder.create(tmp_path, "tiny")
    latest.write_status(started="2999-01-01T00:00:00+00:00")
    assert [run.path.name for run, _ in list_runs(tmp_path)][-1] == latest.path.name
    assert find_run(tmp_path, str(first.path)) == first
    assert find_run(tmp_path, first.path.name) == first
    assert find_run(tmp_path, "quick") == second
    assert find_run(tmp_path, "tiny") == latest
    with pytest.raises(RequestError, match="any of"):
        find_run(tmp_path, "ti")
    with pytest.raises(RequestError, match="no run 'none'"):
        find_run(tmp_path, "none")


def test_a_damaged_run_does_not_hide_the_others(tmp_path: Path) -> None:
    RunFolder.create(tmp_path, "a")
    broken = RunFolder.create(tmp_path, "b")
    broken.status.write_text("{")
    states = {run.path.name[0]: status["state"] for run, status in list_runs(tmp_path)}
    assert states == {"a": "dead", "b": "damaged"}
