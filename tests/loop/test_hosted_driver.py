"""A driver in a worker: the same run, whatever becomes of the process that it lives in."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from miles_core import BuildContext, PluginError, RequestError, Run, RunError, WorkerDied, resume, run
from miles_core.loop import supervise
from miles_core.loop.audit import audit
from miles_core.loop.hosted import HostedDriver
from miles_core.loop.order import Ended, Order
from miles_core.observe import jsonl
from miles_core.observe.folder import RunFolder
from miles_core.observe.trajectories import read_groups

WORKER = {"driver": "worker"}
QUICK = {"restart_delay": 0.1}
SLOW = {"use": "toy", "seconds_per_token": 0.01}
TIMED = ("time/", "engine/engine-", "engine/busy", "engine/idle")


def deterministic(folder: RunFolder) -> list[dict[str, Any]]:
    return [{k: v for k, v in record.items() if not k.startswith(TIMED)} for record in jsonl.read(folder.metrics)]


def identity(folder: RunFolder) -> list[tuple[Any, ...]]:
    return [
        (step, g.id, g.draw, tuple((t.id, t.text, t.reward, dispositions[t.id]) for t in g.trajectories))
        for step, g, dispositions in read_groups(folder.trajectories)
    ]


def events(folder: RunFolder, name: str) -> list[dict[str, Any]]:
    return [event for event in jsonl.read(folder.events) if event["event"] == name]


def soon(condition: Callable[[], Any], seconds: float = 40.0) -> Any:
    deadline = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.02)
    return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def children_of(pid: int) -> list[int]:
    """Whichever thread started them."""
    return [int(c) for file in Path(f"/proc/{pid}/task").glob("*/children") for c in file.read_text().split()]


class Killer:
    """Kills drivers with SIGKILL at given moments: when the checkpoint of that step is there, or at 0
    after the first step. Works beside a run in this process."""

    def __init__(self, runs: Path, *moments: int) -> None:
        self.killed: list[int] = []
        self._runs = runs
        self._moments = moments
        self._thread = threading.Thread(target=self._kill, daemon=True)

    def __enter__(self) -> Killer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._thread.join(60)
        assert not self._thread.is_alive()

    def _kill(self) -> None:
        path = soon(lambda: next(iter(self._runs.glob("[!.]*/run.json")), None))
        folder = RunFolder.at(path.parent)
        for moment in self._moments:
            soon(lambda moment=moment: self._is_there(folder, moment))
            pid = soon(folder.driver)
            os.kill(pid, signal.SIGKILL)
            self.killed.append(pid)
            soon(lambda pid=pid: folder.driver() not in (None, pid))

    def _is_there(self, folder: RunFolder, moment: int) -> bool:
        if moment == 0:
            return folder.metrics.is_file() and folder.metrics.read_bytes().count(b"\n") > 1
        return any(int(path.name[5:]) >= moment for path in folder.checkpoints.glob("step-??????"))


@pytest.fixture
def whole(bench: Any) -> Run:
    """The run that nothing happens to."""
    return run(bench.recipe(runtime={"use": "in-process"}), runs_dir=bench.folder / "whole", view="none")


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervise, "GONE_SECONDS", 0.1)


@pytest.fixture
def command() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """`miles` in a process of its own, killed if it is left."""
    started: list[subprocess.Popen[str]] = []

    def start(*words: str) -> subprocess.Popen[str]:
        miles = [sys.executable, "-m", "miles_core.cli.entry", *words]
        started.append(subprocess.Popen(miles, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for each in started:
        each.kill()
        each.communicate()


def test_the_run_is_the_one_of_a_driver_here(bench: Any, whole: Run) -> None:
    here = whole
    there = run(bench.recipe(runtime=WORKER), runs_dir=bench.runs, view="none")
    assert deterministic(there.folder) == deterministic(here.folder)
    assert identity(there.folder) == identity(here.folder)
    same = ("state", "steps", "evaluations")
    assert [there.summary[key] for key in same] == [here.summary[key] for key in same]
    assert there.summary["faults"] == {}
    assert there.folder.report.is_file() and there.summary["report"] == str(there.folder.report)
    assert [e["event"] for e in jsonl.read(there.folder.events)] == [e["event"] for e in jsonl.read(here.folder.events)]
    assert {path.stem for path in there.folder.logs.iterdir()} == {"driver", "engine-0", "trainer"}


def test_killed_drivers_are_started_again_and_nothing_is_lost(
    bench: Any, whole: Run, at_once: None, capfd: Any
) -> None:
    """Before the first checkpoint, and after one."""
    with Killer(bench.runs, 0, 4) as killer:
        done = run(bench.recipe(engine=SLOW, runtime=WORKER, faults=QUICK), runs_dir=bench.runs, view="plain")
    assert len(killer.killed) == 2
    assert deterministic(done.folder) == deterministic(whole.folder)
    assert identity(done.folder) == identity(whole.folder)
    assert done.summary["evaluations"] == whole.summary["evaluations"]
    assert audit(done.folder).findings == []
    told = events(done.folder, "driver_restarted")
    assert [(each["restart"], each["of"], each["step"]) for each in told] == [(1, 3, 0), (2, 3, 4)]
    assert all("killed by signal 9" in each["why"] for each in told)
    assert done.summary["faults"] == done.folder.read_status()["faults"]
    assert done.summary["faults"]["driver_restarts"] == 2
    shown = capfd.readouterr().err
    assert "worker 'driver' was killed by signal 9" in shown and "is started again in 0.2 s (restart 1 of 3)" in shown
    assert "a new driver goes on from step 4 (restart 2 of 3)" in shown


def test_an_asynchronous_run_loses_nothing_either(bench: Any, at_once: None) -> None:
    schedule = {"use": "async", "groups_per_step": 3, "group_size": 4, "max_staleness": 2}
    with Killer(bench.runs, 2):
        done = run(bench.recipe(engine=SLOW, schedule=schedule, runtime=WORKER), runs_dir=bench.runs, view="none")
    assert len(done.metrics) == 6 and audit(done.folder).findings == []


def test_when_the_restarts_are_spent_the_run_fails_and_is_resumed(bench: Any, whole: Run) -> None:
    recipe = bench.recipe(engine=SLOW, runtime={**WORKER, "driver_restarts": 0})
    with pytest.raises(WorkerDied, match="worker 'driver' was killed by signal 9") as caught, Once(bench.runs, 2):
        run(recipe, runs_dir=bench.runs, view="none")
    (path,) = bench.runs.iterdir()
    assert f"continue with `miles resume {path}`" in caught.value.__notes__[0]
    folder = RunFolder.open(path)
    assert folder.read_status()["state"] == "failed" and "signal 9" in folder.read_status()["error"]
    assert events(folder, "run_failed")[-1]["interrupted"] is False
    done = resume(path, view="none")
    assert deterministic(done.folder) == deterministic(whole.folder) and audit(done.folder).findings == []


class Once(Killer):
    """Kills one driver, after which there is none."""

    def _kill(self) -> None:
        path = soon(lambda: next(iter(self._runs.glob("[!.]*/run.json")), None))
        folder = RunFolder.at(path.parent)
        soon(lambda: self._is_there(folder, self._moments[0]))
        os.kill(soon(folder.driver), signal.SIGKILL)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"rewards": [{"use": "toy_rewards:broken"}]}, "no idea"),
        ({"data": {"use": "file", "path": "gone.jsonl"}}, "gone.jsonl"),
    ],
)
def test_what_is_no_death_is_told_as_by_a_driver_here(bench: Any, at_once: None, changes: Any, error: str) -> None:
    tasks = (bench.folder / "tasks.jsonl").read_text()
    told = []
    for runtime in ({"use": "in-process"}, WORKER):
        (bench.folder / "gone.jsonl").write_text(tasks)
        recipe = bench.recipe(runtime=runtime, evaluate=None, **changes)
        with pytest.raises(Exception, match=error) as caught:
            run(recipe, name=f"r{len(told)}", runs_dir=Remover(bench.runs, bench.folder / "gone.jsonl"), view="none")
        notes = [note.partition(" ")[0] for note in getattr(caught.value, "__notes__", [])]
        told.append((type(caught.value), str(caught.value), notes))
    assert told[0] == told[1]
    for path in bench.runs.iterdir():
        folder = RunFolder.open(path)
        assert folder.read_status()["state"] == "failed" and not folder.read_status().get("faults")
        assert len(events(folder, "run_failed")) == 1


class Remover(type(Path())):  # type: ignore[misc]
    """The runs' folder; when a run's is made in it, a file is removed: between the rehearsal and the run."""

    def __new__(cls, path: Path, file: Path) -> Remover:
        self: Remover = super().__new__(cls, path)
        self.file = file  # type: ignore[attr-defined]
        return self

    def __truediv__(self, name: Any) -> Path:
        self.file.unlink(missing_ok=True)  # type: ignore[attr-defined]
        return Path(str(self)) / name


def test_an_interrupt_is_clean_and_says_what_was_saved(bench: Any, command: Any) -> None:
    bench.recipe(engine=SLOW, steps=500, runtime=WORKER)
    process = command("run", "recipe.yaml", "--quiet")
    soon(lambda: next(iter(bench.runs.glob("*/checkpoints/step-000002")), None))
    (driver,) = children_of(process.pid)
    family = [driver, *children_of(driver)]
    assert len(family) == 3
    process.send_signal(signal.SIGTERM)
    told = process.communicate(timeout=30)[1]
    assert process.returncode == 130
    assert told.startswith("interrupted\nrun folder: ") and "miles resume" in told
    assert not [pid for pid in family if alive(pid)]
    (path,) = bench.runs.iterdir()
    assert json.loads((path / "run.json").read_text())["state"] == "interrupted"
    assert not list(path.rglob("*.partial"))


def test_a_driver_whose_command_is_killed_ends_and_can_be_resumed(bench: Any, command: Any) -> None:
    bench.recipe(engine=SLOW, steps=8, runtime=WORKER)
    process = command("run", "recipe.yaml", "--quiet")
    soon(lambda: next(iter(bench.runs.glob("*/checkpoints/step-000002")), None))
    (driver,) = children_of(process.pid)
    family = [driver, *children_of(driver)]
    process.kill()
    (path,) = bench.runs.iterdir()
    done = resume(path, view="none")  # waits for the driver that ends
    assert not [pid for pid in family if alive(pid)]
    assert len(done.metrics) == 8 and audit(done.folder).findings == []


def test_a_folder_has_one_driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("miles_core.observe.folder._DRIVER_PATIENCE", 0.2)
    folder = RunFolder.create(tmp_path, "one")
    assert folder.driver() is None
    with folder.claimed(), folder.driven():
        assert folder.driver() == os.getpid()
        with pytest.raises(RequestError, match=f"process id {os.getpid()}"), folder.driven():
            pass
    with folder.driven(), pytest.raises(RequestError, match=f"process id {os.getpid()}"), folder.claimed():
        pass
    with folder.claimed():
        assert folder.driver() is None


def test_a_runtime_without_processes_hosts_one_too(bench: Any, whole: Run) -> None:
    runtime = {"use": "in-process", **WORKER}
    there = run(bench.recipe(runtime=runtime), runs_dir=bench.runs, view="none")
    assert deterministic(there.folder) == deterministic(whole.folder) and identity(there.folder) == identity(
        whole.folder
    )


async def test_a_driver_that_was_never_told_to_run_closes_at_once(tmp_path: Path) -> None:
    driver = HostedDriver(None, BuildContext(1, "driver", tmp_path))  # type: ignore[arg-type]
    await driver.start()
    await asyncio.wait_for(driver.close(), 1)


async def test_a_driver_in_a_folder_that_is_none_says_so(tmp_path: Path) -> None:
    driver = HostedDriver(None, BuildContext(1, "driver", tmp_path))  # type: ignore[arg-type]
    await driver.start()
    ended = await asyncio.to_thread(driver.run, Order(tmp_path))
    with pytest.raises(RequestError, match=r"recipe\.yaml"):
        ended.result()
    assert await driver.events() == []


def test_how_a_driver_ended_travels(tmp_path: Path) -> None:
    import pickle

    error = PluginError("broken", where="here", mend="so")
    error.add_note("run folder: x")
    with pytest.raises(PluginError, match="broken") as caught:
        pickle.loads(pickle.dumps(Ended.by(error))).result()
    assert caught.value.__notes__ == ["run folder: x"] and caught.value.problems[0].mend == "so"
    interrupt = KeyboardInterrupt()
    interrupt.add_note("saved")
    with pytest.raises(KeyboardInterrupt) as stopped:
        pickle.loads(pickle.dumps(Ended.by(interrupt))).result()
    assert stopped.value.__notes__ == ["saved"]
    local = type("Local", (Exception,), {})
    with pytest.raises(RunError, match="Local: odd") as odd:
        pickle.loads(pickle.dumps(Ended.by(local("odd")))).result()
    assert "Local: odd" in str(odd.value.__cause__)
