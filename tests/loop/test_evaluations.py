"""Evaluations in every mode: each ends as a score of one weight version or as a reason, and none stops training."""

from __future__ import annotations

import json
import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from miles_core.loop.api import Run, run
from miles_core.observe import jsonl
from miles_core.observe.trajectories import read_groups
from miles_core.types.trajectory import Disposition

SLOW = {"use": "toy", "seconds_per_token": 0.02}
LONG = {"every": 1, "tasks": 5, "max_new_tokens": 40, "temperature": 1.0, "concurrent": 1}
AHEAD = {"use": "async", "groups_per_step": 3, "group_size": 4}


def go(bench: Any, **changes: Any) -> Run:
    return run(bench.recipe(**{"filters": None, "checkpoint": None, **changes}), runs_dir=bench.runs, view="none")


def evaluated(done: Run, name: str = "held-out") -> list[dict[str, Any]]:
    events = jsonl.read(done.folder.events)
    return [e for e in events if e["event"] == "evaluated" and e["name"] == name]


def answered_by(done: Run, name: str) -> dict[int, set[tuple[str, int]]]:
    """Step of an evaluation -> (engine, version) of all that answered it."""
    found: dict[int, set[tuple[str, int]]] = {}
    for path in done.folder.trajectories.glob(f"evaluation-{name}-*.parquet"):
        step = int(path.stem.rpartition("-")[2])
        found[step] = set()
    for step, group, dispositions in read_groups(done.folder.trajectories):
        if Disposition.EVALUATION in dispositions.values() and step in found:
            spans = [span for t in group.trajectories for s in t.sequences for span in s.spans]
            found[step] |= {(span.engine, span.version) for span in spans}
    return found


def test_beside_an_asynchronous_rollout_every_attempt_is_of_the_version_that_is_measured(bench):
    evaluate = [{"use": "shared", "every": 1, "tasks": 8, "temperature": 1.0}]
    done = go(bench, schedule=AHEAD, engine=SLOW, evaluate=evaluate)
    points = evaluated(done)
    assert [(p["step"], p["version"]) for p in points] == [(step, step + 1) for step in range(7)]
    assert not any(p["skipped"] for p in points)
    assert {version for step, found in answered_by(done, "held-out").items() for _, version in found} == set(
        range(1, 8)
    )
    assert all({v for _, v in found} == {step + 1} for step, found in answered_by(done, "held-out").items())
    assert done.metrics[1]["evaluation/held-out/version"] in (1.0, 2.0)


def test_an_update_may_end_an_evaluation_with_a_reason(bench):
    evaluate = [{"use": "shared", **LONG, "on_update": "skip"}]
    done = go(bench, schedule=AHEAD, engine=SLOW, evaluate=evaluate, steps=3)
    points = evaluated(done)
    assert sum("was due before it ended (on_update: skip)" in p["skipped"] for p in points) >= 2
    assert points[-1]["score"] is not None and points[-1]["version"] == 4  # the last one always happens
    assert len(done.metrics) == 3


def test_a_fleet_of_its_own_measures_while_training_goes_on(bench):
    evaluate = [{"use": "fleet", "every": 1, "tasks": 8, "replicas": 2, "queue": 9, "temperature": 1.0}]
    done = go(bench, evaluate=evaluate, engine={"use": "toy", "seconds_per_token": 0.005})
    points = evaluated(done, "fleet")
    assert sorted((p["step"], p["version"]) for p in points) == [(step, step + 1) for step in range(7)]
    assert not any(p["skipped"] for p in points)
    engines = {engine for found in answered_by(done, "fleet").values() for engine, _ in found}
    assert engines == {"evaluation-fleet-0", "evaluation-fleet-1"}
    assert all({v for _, v in found} == {step + 1} for step, found in answered_by(done, "fleet").items())
    assert not list(done.folder.path.glob("exports/*"))


def test_a_busy_fleet_skips_with_a_reason_and_the_last_evaluation_happens(bench):
    evaluate = [{"use": "fleet", **LONG, "queue": 0}]
    done = go(bench, evaluate=evaluate, engine={"use": "toy", "seconds_per_token": 0.004})
    points = evaluated(done, "fleet")
    assert any(p["skipped"] == "another evaluation is under way (queue: 0)" for p in points)
    last = points[-1]
    assert (last["step"], last["version"], last["skipped"]) == (6, 7, "")
    assert {p["step"] for p in points} == set(range(7))  # no point is silently absent
    late = [p for p in points if p["score"] is not None and p["lag_steps"] > 0]
    assert late and all(p["lag_versions"] == p["lag_steps"] for p in late)
    shown = done.summary["evaluations"]["fleet"]
    assert shown["skipped"] == len(shown["missing"]) and "under way" in shown["missing"][0]["why"]


def test_weights_without_a_version_are_measured_when_they_are_published(bench):
    evaluate = [
        {"use": "fleet", "every": 2, "tasks": 4, "queue": 9},
        {"use": "command", "every": 2, "queue": 9, "run": ["python", "-c", WEIGHT_OF_A]},
    ]
    done = go(bench, schedule={**AHEAD, "update_every": 3}, evaluate=evaluate, steps=7)
    for name in ("fleet", "command"):
        assert sorted((p["step"], p["version"], p["skipped"]) for p in evaluated(done, name)) == [
            (0, 1, ""), (3, 2, ""), (6, 3, ""), (7, 4, "")
        ]  # fmt: skip


def test_a_dead_fleet_costs_its_points_alone(bench):
    evaluate = [{"use": "fleet", "every": 1, "tasks": 8, "max_new_tokens": 40, "queue": 0}]
    faults = {"restart_delay": 0.1}
    with killing(bench, "evaluation-fleet-0"):
        done = go(bench, evaluate=evaluate, engine=SLOW, faults=faults, steps=8)
    points = evaluated(done, "fleet")
    assert any(p["skipped"] and "busy" not in p["skipped"] for p in points)
    assert {p["step"] for p in points} == set(range(9))
    assert points[-1]["version"] == 9 and not points[-1]["skipped"]
    assert len(done.metrics) == 8


class killing:
    """SIGKILL for a worker, as soon as it has answered something."""

    def __init__(self, bench: Any, worker: str) -> None:
        self._bench, self._worker = bench, worker
        self._thread = threading.Thread(target=self._kill, daemon=True)

    def __enter__(self) -> None:
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._thread.join()

    def _kill(self) -> None:
        for _ in range(400):
            time.sleep(0.05)
            found = list(self._bench.runs.glob("*/events.jsonl"))
            if not found or '"weights_published"' not in found[0].read_text():
                continue
            for process in Path("/proc").glob("[0-9]*"):
                try:
                    log = str((process / "fd" / "1").readlink())
                    parent = (process / "stat").read_text().rpartition(")")[2].split()[1]
                except OSError:
                    continue
                if log.endswith(f"logs/{self._worker}.log") and int(parent) == os.getpid():
                    time.sleep(0.2)
                    os.kill(int(process.name), signal.SIGKILL)
                    return


PROGRAM = """
import json, os, pathlib, sys, time
version, step = int(os.environ["MILES_VERSION"]), int(os.environ["MILES_STEP"])
assert sys.argv[1:] == [os.environ["MILES_WEIGHTS"], str(version)]
logits = json.loads((pathlib.Path(os.environ["MILES_WEIGHTS"]) / "toy.json").read_text())["logits"]
print("loading")
print(json.dumps({"datasets": {
    "letters": {"scores": {"a": [1, 0, 1, 0], "b": [0, 0, 0, float(logits[97] > 0)]}, "figures": {"length": 3}},
    "whole": {"score": version / 10, "n": 50, "stderr": 0.01},
}}))
"""


def test_a_program_scores_exported_weights(bench):
    (bench.folder / "score.py").write_text(PROGRAM)
    run_ = ["python", "score.py", "{weights}", "{version}"]
    evaluate = [{"use": "command", "name": "bench", "every": 2, "run": run_, "pass_at": [2], "queue": 5}]
    done = go(bench, evaluate=evaluate, engine={"use": "toy", "seconds_per_token": 0.003})
    whole, letters = evaluated(done, "bench/whole"), evaluated(done, "bench/letters")
    assert [(p["step"], p["version"], p["score"]) for p in whole] == [(s, s + 1, (s + 1) / 10) for s in (0, 2, 4, 6)]
    assert whole[0]["low"] == pytest.approx(0.1 - 0.0196, abs=1e-4) and whole[0]["n"] == 50
    assert letters[0]["scores"] == {"a": 0.5, "b": 0.0}
    assert letters[0]["figures"]["pass@2"]["mean"] == pytest.approx((1 - 1 / 6) / 2)
    assert letters[-1]["scores"]["b"] == 0.25  # the weights are those of the version: they have learned
    assert done.summary["evaluations"]["bench/whole"]["after"] == pytest.approx(0.7)
    assert not list(done.folder.path.glob("exports/*"))


WEIGHT_OF_A = """
import json, os, pathlib
weights = json.loads((pathlib.Path(os.environ["MILES_WEIGHTS"]) / "toy.json").read_text())
print(json.dumps({"score": weights["logits"][97]}))
"""

FAILING = {
    "exits": ("import sys; print('no GPU', file=sys.stderr); sys.exit(3)", "exited with 3: no GPU"),
    "garbage": ("print('score: 0.5')", "is no JSON: score: 0.5"),
    "nan": ("print('{\"score\": NaN}')", "is nan"),
    "out": ('print(\'{"scores": {"a": 7}}\')', "is 7, outside [0, 1]"),
    "text": ('print(\'{"scores": {"a": "high"}}\')', "is high, expected a number"),
    "silent": ("pass", "it told no scores"),
    "hangs": ("import subprocess; subprocess.run(['sleep', '77.7'])", "time limit of 1 s"),
}


def test_a_program_that_fails_is_a_missing_point(bench):
    evaluate = [
        {"use": "command", "name": name, "run": ["python", "-c", program], "bounds": [0, 1], "time_limit": limit}
        for name, (program, _) in FAILING.items()
        for limit in [1.0 if name == "hangs" else 60.0]
    ]
    done = go(bench, evaluate=evaluate, steps=1)
    for name, (_, why) in FAILING.items():
        points = evaluated(done, name)
        assert len(points) == 2 and all(why in p["skipped"] and p["score"] is None for p in points), points
        assert done.summary["evaluations"][name]["why"] == points[-1]["skipped"]
    assert not [p for p in Path("/proc").glob("[0-9]*/cmdline") if b"77.7" in _read(p)]  # the whole group is gone


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


ODD = """
import asyncio
from miles_core import Evaluation
class Odd:
    @property
    def name(self): return type(self).__name__
    def __init__(self, options, context): pass
    def due(self, step, last): return True
    def tasks(self, data): return data.held_out(2)
    async def evaluate(self, step, version, context):
        return Evaluation(self.name, version, step, {t.id: 1.0 for t in self.tasks(context.data)})
class Raises(Odd):
    async def evaluate(self, step, version, context): raise ValueError("no idea")
class Leaves(Odd):
    async def evaluate(self, step, version, context): raise SystemExit(3)
class Cancels(Odd):
    async def evaluate(self, step, version, context): raise asyncio.CancelledError
class NaN(Odd):
    async def evaluate(self, step, version, context):
        return Evaluation(self.name, version, step, {t.id: float("nan") for t in self.tasks(context.data)})
class Ids(Odd):
    async def evaluate(self, step, version, context):
        return Evaluation(self.name, version, step, {"h0": 1.0, "other": 0.0})
class Version(Odd):
    async def evaluate(self, step, version, context):
        return Evaluation(self.name, version + 1, step, {t.id: 1.0 for t in self.tasks(context.data)})
class Nothing(Odd):
    async def evaluate(self, step, version, context): pass
class Due(Odd):
    def due(self, step, last): raise KeyError("when")
"""


WHY = {
    "Raises": "ValueError: no idea (",
    "Leaves": "SystemExit: 3",
    "Cancels": "it was cancelled, by itself",
    "NaN": "the score of task 'h0' is nan",
    "Ids": "1 scores are of tasks that were not asked for: 'other'; 1 of 2 tasks have no score: 'h1'",
    "Version": "it is filed under 'Version', step 0, version 2; asked for were 'Version', step 0, version 1",
    "Nothing": "it returned None, expected an Evaluation",
    "Due": "`due` raised KeyError",
}


def test_an_evaluator_that_fails_is_a_missing_point(bench):
    (bench.folder / "odd.py").write_text(ODD)
    done = go(bench, evaluate=[{"use": f"odd:{name}"} for name in WHY], steps=2)
    for name, why in WHY.items():
        points = evaluated(done, name)
        assert len(points) == 3 and why in points[0]["skipped"], points
        assert done.metrics[0][f"evaluation/{name}/missing"] == 1
    assert len(done.metrics) == 2


def test_an_evaluation_that_hangs_is_given_up(bench):
    evaluate = [{"use": "shared", "tasks": 8, "max_new_tokens": 90, "time_limit": 0.3, "temperature": 1.0}]
    done = go(bench, evaluate=evaluate, engine=SLOW, steps=1)
    assert [p["skipped"] for p in evaluated(done)] == ["it took longer than its time limit of 0.3 s"] * 2


def test_several_datasets_have_names_attempts_and_intervals_of_their_own(bench):
    for name, rows in (("easy", 3), ("hard", 5)):
        lines = [{"id": f"t{i}", "prompt": f"{name}{i}"} for i in range(rows)]
        (bench.folder / f"{name}.jsonl").write_text("\n".join(map(json.dumps, lines)) + "\n")
    datasets = [
        {"name": "easy", "path": "easy.jsonl", "attempts": 4, "pass_at": [1, 4], "threshold": 0.01},
        {"name": "hard", "path": "hard.jsonl", "tasks": 4},
    ]
    evaluate = [{"use": "shared", "name": "suite", "temperature": 1.0, "max_new_tokens": 60, "datasets": datasets}]
    done = go(bench, evaluate=evaluate, steps=2)
    easy, hard = evaluated(done, "suite/easy"), evaluated(done, "suite/hard")
    assert [len(p["scores"]) for p in (easy[0], hard[0])] == [3, 4]
    figures = easy[-1]["figures"]
    assert figures["pass@4"]["mean"] >= figures["pass@1"]["mean"] > 0 and figures["pass@4"]["n"] == 3
    assert "pass@1" not in hard[0]["figures"]
    assert easy[0]["low"] < easy[0]["score"] < easy[0]["high"]
    assert {"suite/easy", "suite/hard"} == set(done.summary["evaluations"])
    assert done.metrics[-1]["evaluation/suite/easy/pass@4"] == figures["pass@4"]["mean"]


def test_what_was_under_way_at_a_crash_is_made_again_or_missing_with_a_reason(bench):
    from miles_core.loop.api import resume

    evaluate = [{"use": "fleet", **LONG, "queue": 9}]
    path = bench.recipe(
        evaluate=evaluate, engine={"use": "toy", "seconds_per_token": 0.003}, filters=None, steps=6,
        checkpoint={"every": 3}, rewards=[{"use": "toy_rewards:share_of_a"}],
    )  # fmt: skip
    folder = _killed(bench, path, lambda events: any('"checkpoint_saved"' in e for e in events))
    state = json.loads((folder / "checkpoints" / "step-000003" / "state.json").read_text())
    assert state["evaluations"], "nothing was under way: the test shows nothing"
    resumed = resume(folder, view="none")
    points = evaluated(resumed, "fleet")
    steps = [p["step"] for p in points]
    assert sorted(steps) == list(range(7)), steps  # none absent, none twice
    assert all(p["score"] is not None or "weights are gone" in p["skipped"] for p in points), points
    assert points[-1]["score"] is not None


def _killed(bench: Any, recipe: Path, when: Callable[[list[str]], bool]) -> Path:
    """A run in a process of its own, killed once its events say so."""
    import subprocess
    import sys

    command = [
        sys.executable,
        "-m",
        "miles_core.cli.entry",
        "run",
        str(recipe),
        "--quiet",
        "--runs-dir",
        str(bench.runs),
    ]
    process = subprocess.Popen(command, cwd=bench.folder, start_new_session=True)
    for _ in range(6000):
        time.sleep(0.02)
        found = list(bench.runs.glob("*/events.jsonl"))
        if found and when(found[0].read_text().splitlines()):
            break
        assert process.poll() is None, "it ended before it was killed"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    return found[0].parent


def test_a_checkpoint_is_evaluated_again_with_the_same_scores(bench, capsys):
    from miles_core.cli.guard import guarded as main

    evaluate = [{"use": "shared", "tasks": 8, "attempts": 2, "temperature": 1.0, "pass_at": [2]}]
    done = go(bench, evaluate=evaluate, steps=2)
    arguments = ["eval", done.folder.path.name, "--runs-dir", str(bench.runs), "--quiet"]
    assert main([*arguments, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    again, before = told["evaluations"][0], evaluated(done)[-1]
    assert (told["step"], told["version"]) == (2, 3)
    assert [again[key] for key in ("score", "low", "high", "n")] == [
        before[key] for key in ("score", "low", "high", "n")
    ]
    assert again["figures"]["pass@2"] == before["figures"]["pass@2"]
    command = "evaluate=[{use: command, run: [python, -c, 'exit(5)']}]"
    assert main([*arguments, "--set", command]) == 1
    assert "no score: RunError: " in capsys.readouterr().out
    assert main([*arguments, "--step", "1"]) == 2
    assert len(evaluated(done)) == 2  # the run's own record stays as it was


def test_a_supervised_run_without_engines_is_measured_by_a_program(bench):
    demonstrations = {"generator": {"use": "demonstration"}, "rewards": None, "advantage": None, "engine": None}
    program = "import json, os; print(json.dumps({'score': len(os.listdir(os.environ['MILES_WEIGHTS']))}))"
    evaluate = [{"use": "command", "every": 1, "run": ["python", "-c", program]}]
    schedule = {"use": "sync", "groups_per_step": 3, "group_size": 1}
    done = go(bench, **demonstrations, schedule=schedule, evaluate=evaluate, steps=2)
    assert [(p["step"], p["score"]) for p in evaluated(done, "command")] == [(0, 1), (1, 1), (2, 1)]
