"""Runs that are killed or interrupted, in processes of their own; what is left behind; and resuming them."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from miles_core import resume, run
from miles_core.observe import jsonl
from miles_core.observe.trajectories import read_groups

DRIVER = "import sys, miles_core; miles_core.run(sys.argv[1], runs_dir=__import__('pathlib').Path('runs'), view='none')"
SLOW = {"use": "toy", "seconds_per_token": 0.01}


def start(recipe: Path) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", DRIVER, str(recipe)], stderr=subprocess.PIPE, text=True)


def wait_for(condition, seconds: float = 30.0):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if found := condition():
            return found
        time.sleep(0.02)
    raise AssertionError("waited too long")


def checkpoint(bench, step: int):
    return lambda: next(iter(bench.runs.glob(f"*/checkpoints/step-{step:06d}")), None)


def children_of(pid: int) -> list[int]:
    return [int(c) for c in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def deterministic(folder) -> list[dict]:
    records = jsonl.read(folder.metrics)
    return [{k: v for k, v in record.items() if not k.startswith(("time/", "engine/engine-"))} for record in records]


def identity(folder) -> list[tuple]:
    return [
        (step, g.id, g.draw, tuple((t.id, t.text, t.reward, dispositions[t.id]) for t in g.trajectories))
        for step, g, dispositions in read_groups(folder.trajectories)
    ]


@pytest.mark.parametrize("step", [2, 4])
def test_a_killed_run_continues_as_if_it_had_never_stopped(bench, step):
    whole = run(bench.recipe(engine=SLOW), runs_dir=bench.folder / "whole", view="none")
    process = start(bench.recipe(engine=SLOW))
    wait_for(checkpoint(bench, step))
    time.sleep(0.05 * step)  # somewhere inside the next step
    workers = children_of(process.pid)
    assert workers
    process.kill()
    process.communicate()
    wait_for(lambda: not any(alive(pid) for pid in workers))
    (folder,) = bench.runs.iterdir()
    resumed = resume(folder, view="none")
    assert deterministic(resumed.folder) == deterministic(whole.folder)
    assert identity(resumed.folder) == identity(whole.folder)
    assert resumed.summary["evaluations"] == whole.summary["evaluations"]


@pytest.mark.parametrize("signal_sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_is_clean_and_says_what_was_saved(bench, signal_sent):
    process = start(bench.recipe(engine=SLOW, steps=500))
    wait_for(checkpoint(bench, 2))
    workers = children_of(process.pid)
    process.send_signal(signal_sent)
    _, errors = process.communicate(timeout=20)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors
    assert "miles resume" in errors
    assert workers and not any(alive(pid) for pid in workers)
    (folder,) = bench.runs.iterdir()
    assert json.loads((folder / "run.json").read_text())["state"] == "interrupted"
    assert not list(folder.rglob("*.partial"))


@pytest.mark.parametrize("runtime", [None, {"driver": "worker"}])
def test_a_run_without_a_checkpoint_begins_again_in_its_folder(bench, runtime):
    recipe = {"checkpoint": {"every": 0}, "steps": 3}
    whole = run(bench.recipe(**recipe), runs_dir=bench.folder / "whole", view="none")
    process = start(bench.recipe(**recipe, engine=SLOW, runtime=runtime))
    wait_for(lambda: any(jsonl.read(path) for path in bench.runs.glob("[!.]*/metrics.jsonl")))
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    (folder,) = bench.runs.iterdir()
    assert f"no checkpoint was saved yet; begin again with `miles resume {folder.relative_to(bench.folder)}`" in errors
    resumed = resume(folder, view="none")
    assert deterministic(resumed.folder) == deterministic(whole.folder)
    assert identity(resumed.folder) == identity(whole.folder)
    assert resumed.summary["evaluations"] == whole.summary["evaluations"]
    notes = [event["text"] for event in jsonl.read(resumed.folder.events) if event["event"] == "note"]
    assert notes == ["no checkpoint was saved: the run begins again from its beginning"]


def test_a_second_process_cannot_work_in_the_same_folder(bench):
    from miles_core import RequestError

    process = start(bench.recipe(engine=SLOW, steps=500))
    wait_for(checkpoint(bench, 2))
    (folder,) = bench.runs.iterdir()
    with pytest.raises(RequestError, match=str(process.pid)):
        resume(folder, view="none")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)


def test_a_half_written_checkpoint_is_never_picked_up(bench):
    done = run(bench.recipe(), runs_dir=bench.runs, view="none")
    done.folder.write_status(state="interrupted")
    (done.folder.checkpoints / "step-000099.partial").mkdir()
    newest = done.folder.checkpoints / "step-000006"
    newest.rename(newest.with_name("step-000006.partial"))
    resumed = resume(done.folder.path, view="none")
    assert [r["step"] for r in resumed.metrics] == list(range(6))
    assert sorted(p.name for p in done.folder.checkpoints.iterdir() if not p.name.endswith("partial")) == [
        "step-000004",
        "step-000006",
    ]


def test_a_disk_that_fills_says_which_file(bench, tmp_path):
    limited = (
        "import resource, sys, signal, miles_core\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_IGN)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))\n"
        "try:\n    miles_core.run(sys.argv[1], view='none')\n"
        "except miles_core.MilesError as error:\n    print(error); sys.exit(error.exit_code)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", limited, str(bench.recipe(steps=200, runtime={"use": "in-process"}))],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert str(bench.runs.name) in done.stdout
    assert "Traceback" not in done.stderr
