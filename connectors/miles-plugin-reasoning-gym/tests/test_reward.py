"""Scores against reasoning-gym's own, on groups that went through a Parquet file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import reasoning_gym
from hypothesis import given
from hypothesis import strategies as st
from miles_plugin_reasoning_gym.data import ReasoningGymData
from miles_plugin_reasoning_gym.options import DataOptions, RewardOptions
from miles_plugin_reasoning_gym.reward import ReasoningGymReward, contains, extract

from miles_core import BuildContext, Group, RunError, Sequence, Task, Trajectory

CONTEXT = BuildContext(seed=1, name="x")


def tasks(count: int = 4, **options: Any) -> list[Task]:
    chosen = {"tasks": ["chain_sum"], "size": 30, "held_out": 20} | options
    return ReasoningGymData(DataOptions.model_validate(chosen), CONTEXT).held_out(count)


def group(task: Task, *texts: str) -> Group:
    row = Sequence(np.array([1], np.int32), np.array([True]), None, np.array([0], np.int32))
    made = tuple(Trajectory(f"t{i}", task.id, i, (row,), text=text) for i, text in enumerate(texts))
    return Group(task, 0, 0, made)


async def scores(task: Task, *texts: str, **options: Any) -> list[float]:
    found = await ReasoningGymReward(RewardOptions(**options), CONTEXT).score(group(task, *texts))
    assert all(score is not None for score in found)
    return [score.value for score in found if score is not None]


async def test_scores_are_the_generators_own() -> None:
    for task in tasks(6, tasks=["chain_sum", "countdown", "graph_color", "palindrome_generation", "figlet_font"]):
        facts = task.metadata
        source = reasoning_gym.create_dataset(facts["generator"], seed=facts["seed"], size=facts["size"])
        entry = source[facts["index"]]
        texts = ["banana", f"it is {task.answer}.", task.answer or "", ""]
        assert await scores(task, *texts) == [float(source.score_answer(text, entry)) for text in texts]


async def test_a_task_survives_parquet(tmp_path: Path) -> None:
    before = tasks(6, tasks={"chain_sum": {"config": {"max_terms": 3}}, "maze": {}, "sudoku": {}})
    table = pa.table({"task": [json.dumps([t.id, t.prompt, t.answer, dict(t.metadata)]) for t in before]})
    columns = pa.table({"metadata": [dict(t.metadata) for t in before]})  # and as a struct column
    pq.write_table(table, tmp_path / "tasks.parquet")
    pq.write_table(columns, tmp_path / "columns.parquet")
    read = [json.loads(text) for text in pq.read_table(tmp_path / "tasks.parquet")["task"].to_pylist()]
    structs = pq.read_table(tmp_path / "columns.parquet")["metadata"].to_pylist()
    for task, (id, prompt, answer, metadata), struct in zip(before, read, structs, strict=True):
        for facts in (metadata, struct):
            after = Task(id, prompt, answer, facts)
            assert await scores(after, answer) == await scores(task, answer) == [1.0]


async def test_exact_contained_and_extracted_scores() -> None:
    task = tasks(1)[0]
    right = str(task.answer)
    sentence = f"The answer is {right}."
    graded = len(right) / len(sentence)  # chain_sum's own rule
    assert await scores(task, right, sentence, "x", "") == pytest.approx([1, graded, 0, 0])
    assert await scores(task, right, sentence, exact=True) == [1, 0]
    assert await scores(task, right, sentence, "x", contained=0.3) == [1, 0.3, 0]
    assert await scores(task, sentence, "none", extract="last-number") == [1, 0]
    assert await scores(task, f"<answer> {right} </answer>", right, extract="answer-tag") == [1, 0]
    assert await scores(task, f"hm\n{right}\n\n", f"{right}\nhm", extract="last-line", exact=True) == [1, 0]
    assert await scores(task, f"\n{right}\nhm", extract="first-line") == [1]


@pytest.mark.parametrize(
    ("text", "part", "expected"),
    [
        ("  6 \n", "whole", "6"),
        ("", "whole", ""),
        ("a\n\n b \n", "last-line", "b"),
        ("\n a\nb", "first-line", "a"),
        (" \n", "last-line", None),
        ("8-2=6", "last-number", "6"),
        ("so -6", "last-number", "-6"),
        ("5, 4", "last-number", "4"),
        ("it is 1,200.50.", "last-number", "1,200.50"),
        ("9-3", "last-number", "3"),
        ("none", "last-number", None),
        ("<answer>1</answer> <answer>\n2 </answer>", "answer-tag", "2"),
        ("<answer>1", "answer-tag", None),
    ],
)
def test_extraction(text: str, part: str, expected: str | None) -> None:
    assert extract(text, part) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [("is 6.", True), ("6", True), ("3+3=6", True), ("16", False), ("6.5", False), ("-6", False), ("6th", False),
     ("6,000", False), ("5, 6, 7", True), ("", False)],
)  # fmt: skip
def test_containment(text: str, expected: bool) -> None:
    assert contains(text, "6") is expected


@given(text=st.text(), answer=st.text(min_size=1))
def test_containment_takes_answers_literally(text: str, answer: str) -> None:
    if contains(text, answer):
        assert answer in text
    assert contains(f"= {answer} ", answer)


async def test_a_scorer_that_raises_names_the_task() -> None:
    """reasoning-gym's prime_factorization parses whatever it is given with int()."""
    task = tasks(1, tasks=["prime_factorization"])[0]
    with pytest.raises(RunError, match="raised ValueError: invalid literal") as caught:
        await scores(task, "banana")
    assert task.id in str(caught.value) and "unreadable" in str(caught.value)
    assert await scores(task, "banana", str(task.answer), unreadable=0.0) == [0, 1]


async def test_a_task_of_other_data_is_refused() -> None:
    with pytest.raises(RunError, match="does not say which reasoning-gym generator") as caught:
        await scores(Task("row-7", "1 + 1 =", "2", {"source": "file"}), "2")
    assert "row-7" in str(caught.value)


async def test_an_entry_that_is_no_longer_the_same_is_refused() -> None:
    task = tasks(1)[0]
    changed = Task(task.id, task.prompt, task.answer, dict(task.metadata) | {"digest": "0" * 16})
    with pytest.raises(RunError, match="no longer makes the question"):
        await scores(changed, "1")
