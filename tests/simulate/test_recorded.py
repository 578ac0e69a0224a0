"""Lengths and speeds that were recorded."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from miles_core import Group, RequestError, Span
from miles_core import Sequence as Row
from miles_core.observe.folder import RunFolder
from miles_core.observe.jsonl import JsonLines
from miles_core.observe.trajectories import write_groups
from miles_core.simulate.decoding import decoding
from miles_core.simulate.lengths import read_lengths
from miles_core.simulate.measured import measure
from miles_core.testing import make_task
from miles_core.types.trajectory import Disposition, Trajectory

TRACE = Path(__file__).parents[2] / "benchmarks" / "traces" / "smollm2-135m.parquet"


def drawn(lengths, groups=200, size=2):
    return [lengths.draw(random.Random(n), random.Random(-n - 1), size) for n in range(groups)]


def trajectory(name: str, prompt: int, output: int, reward: float) -> Trajectory:
    n = prompt + output
    sampled = np.arange(n) >= prompt
    span = (Span(prompt, n, 1, "e", "r"),)
    row = Row(np.zeros(n, np.int32), sampled, np.zeros(n, np.float32), sampled.astype(np.int32), span)
    return Trajectory(name, "t", int(name[-1]), (row,), reward=reward)


def recorded_run(folder: Path) -> None:
    """Two groups, short and solved, long and not; and an evaluation, which is no training."""
    for number, outputs in enumerate([(3, 4), (50, 60)]):
        made = tuple(trajectory(f"g{number}.{i}", 7 + number, n, 1.0 - number) for i, n in enumerate(outputs))
        entry = (Group(make_task(), number, 0, made), {t.id: Disposition.TRAINED for t in made})
        write_groups(folder, f"step-{number:06d}", [entry], step=number)
    attempt = trajectory("e.0", 1, 999, 1.0)
    entry = (Group(make_task(), 0, 0, (attempt,)), {attempt.id: Disposition.EVALUATION})
    write_groups(folder, "evaluation-x-000000", [entry], step=0)


def test_lengths_of_a_run_are_drawn_by_group(tmp_path):
    recorded_run(tmp_path)
    groups = drawn(read_lengths(str(tmp_path), tmp_path))
    seen = {tuple(sorted((w.prompt, w.tokens, w.reward) for w in group)) for group in groups}
    assert seen == {((7, 3, 1.0), (7, 4, 1.0)), ((8, 50, 0.0), (8, 60, 0.0))}
    one_file = drawn(read_lengths(str(tmp_path / "step-000001.parquet"), tmp_path), size=5)
    assert {work.tokens for group in one_file for work in group} == {50, 60}


@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_lengths_of_a_table_are_drawn_from_it(tmp_path, kind):
    path = tmp_path / f"lengths.{kind}"
    if kind == "csv":
        path.write_text("prompt,output,extra\n5,10,x\n6,20,y\n7,30,z\n")
    else:
        pq.write_table(pa.table({"prompt": [5, 6, 7], "output": [10, 20, 30]}), path)
    works = [work for group in drawn(read_lengths(str(path), tmp_path), groups=600) for work in group]
    assert {(work.prompt, work.tokens) for work in works} == {(5, 10), (6, 20), (7, 30)}
    assert np.mean([work.tokens for work in works]) == pytest.approx(20, abs=1.5)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("prompt,tokens\n1,2\n", "has no column 'output'"),
        ("prompt,output\n1,0\n-1,5\n", "row 1"),
        ("prompt,output\n1,inf\n", r"row 0.*output is inf, expected a number of tokens from 1 to"),
        ("prompt,output\n1,2\nx,2\n", r"row 1.*prompt is 'x', expected"),
        ("prompt,output,reward\n1,2,0.5\n1,2,inf\n", r"row 1.*reward is inf, expected a finite number"),
        ("prompt,output,reward\n1,2,\n1,2,good\n", "reward is 'good', expected a finite number, or none"),
        ("prompt,output\n", "has no attempt"),
        ("prompt,output\n1,2,3\n", "cannot be read"),
        ("prompt,output,status\n1,2,odd\n", "'odd' is not a valid Status"),
    ],
)
def test_damaged_tables_are_refused(tmp_path, content, said):
    path = tmp_path / "lengths.csv"
    path.write_text(content)
    with pytest.raises(RequestError, match=said):
        read_lengths(str(path), tmp_path)


@pytest.mark.parametrize("text", ["lognormal:mu=1e9,sigma=1e9", "lognormal:mu=nan,sigma=-1", "constant:tokens=inf"])
def test_parameters_have_a_range(tmp_path, text):
    with pytest.raises(RequestError, match=r"expected a number from -?\d+ to \d") as caught:
        read_lengths(text, tmp_path)
    assert len(caught.value.problems) == text.count("=")


def test_the_widest_distribution_is_still_drawn_from(tmp_path):
    lengths = read_lengths("lognormal:mu=20,sigma=10,prompt=1e9", tmp_path)
    assert max(work.tokens for group in drawn(lengths, groups=300) for work in group) > 10**9


def test_what_is_nothing_is_refused(tmp_path):
    with pytest.raises(RequestError, match="no file, no distribution, and no run"):
        read_lengths("lognormal", tmp_path)


def test_parametric_lengths_follow_their_distribution():
    works = [w for g in drawn(read_lengths("lognormal:mu=5,sigma=0.5,prompt=9", Path()), groups=3000) for w in g]
    logs = np.log([work.tokens for work in works])
    assert (logs.mean(), logs.std()) == (pytest.approx(5, abs=0.03), pytest.approx(0.5, abs=0.03))
    assert {work.prompt for work in works} == {9}


@pytest.mark.parametrize("schedule", ["sync", "one-step-off"])
def test_the_speed_of_engines_is_found_again(schedule):
    alone, neighbour, noise = 0.02, 0.001, np.random.default_rng(1)
    batches = {step: noise.integers(1, 100, 16).tolist() for step in range(1, 12)}
    steps = []
    for step in range(1, 11):
        made = batches[step + (schedule == "one-step-off")]
        there = [sum(n > t for n in made) for t in range(max(made))]
        took = [alone + neighbour * (count - 1) for count in there]
        attempts = sum(count * seconds for count, seconds in zip(there, took, strict=True))
        train = 0.5
        rollout = sum(took) - (train if schedule == "one-step-off" else 0.0)
        length = rollout + train
        steps.append(
            {"step": step, "time/rollout": rollout, "time/train": train, "time/step": length,
             "time/in_flight": attempts / length, "time/engine_idle": 0.5}
        )  # fmt: skip
    found = decoding(steps, batches, 1, schedule)
    assert found["seconds_per_token"] == pytest.approx(alone)
    assert found["seconds_per_neighbour"] == pytest.approx(neighbour)


def made_up_run(root: Path) -> RunFolder:
    """Ten steps of two engines, 4 attempts each; a training step is 0.2 s and a millisecond a token."""
    folder = RunFolder.create(root, "made-up")
    folder.recipe.write_text("engine: {use: toy, replicas: 2}\nschedule: {use: async}\n")
    log = JsonLines(folder.metrics)
    for step in range(10):
        outputs = [10 + step, 20, 30, 40]
        made = tuple(trajectory(f"g{step}.{i}", 5, n, 1.0) for i, n in enumerate(outputs))
        entry = (Group(make_task(), step, 0, made), {t.id: Disposition.TRAINED for t in made})
        write_groups(folder.trajectories, f"step-{step:06d}", [entry], step=step)
        train, publish, tokens = 0.2 + 0.001 * (sum(outputs) + 20), 0.1, sum(outputs)
        decoded = tokens * (0.05 + 0.01 * (4 / 2 - 1))  # attempt-seconds: 4 in flight, 2 at each engine
        length = decoded / 4 + publish
        log.append(
            {"step": step, "phase": "main", "version": step + 1, "rollout/tokens": tokens, "time/train": train,
             "time/publish": publish, "time/rollout": length - train - publish - 0.25, "time/step": length,
             "time/in_flight": 4.0, "time/engine_idle": 0.0}
        )  # fmt: skip
    log.close()
    return folder


def test_speeds_of_a_run_are_read_from_its_records(tmp_path):
    folder = made_up_run(tmp_path)
    found = measure("made-up", tmp_path)
    assert found["train_seconds"] == pytest.approx(0.2)
    assert found["train_tokens_per_second"] == pytest.approx(1000)
    assert found["publish_seconds"] == pytest.approx(0.1)
    assert found["record_seconds"] == pytest.approx(0.25)
    assert found["seconds_per_token"] + found["seconds_per_neighbour"] == pytest.approx(0.06)  # never seen apart
    folder.metrics.write_bytes(b"".join(folder.metrics.read_bytes().splitlines(keepends=True)[:3]))
    with pytest.raises(RequestError, match="fewer than 2 steps"):
        measure("made-up", tmp_path)


def test_the_trace_that_is_shipped_is_of_a_real_model_and_has_a_tail():
    trace = read_lengths(str(TRACE), Path())
    sizes = [len(group) for group in trace.groups]
    tokens = sorted(work.tokens for group in trace.groups for work in group)
    assert set(sizes) == {8} and len(tokens) >= 128
    assert tokens[-1] == 256 and tokens[len(tokens) // 10] < 64 and min(w.prompt for g in trace.groups for w in g) > 10
