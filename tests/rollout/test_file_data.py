"""The file data source: columns, orders, resuming, and every fault at once."""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.parquet
import pytest

from miles_core import BuildContext, RequestError
from miles_core.rollout.file_data import FileData, FileDataOptions

CONTEXT = BuildContext(7, "test")


def open_data(path, **options) -> FileData:
    return FileData(FileDataOptions(path=path, **options), CONTEXT)


def draws(data: FileData, n: int) -> list[tuple[str, int]]:
    return [(d.task.id, d.draw) for d in (data.draw() for _ in range(n)) if d is not None]


@pytest.fixture
def jsonl(tmp_path):
    path = tmp_path / "tasks.jsonl"
    rows = [{"id": f"t{i}", "prompt": f"p{i}", "answer": i, "level": i} for i in range(6)]
    path.write_text("\n".join(map(json.dumps, rows)) + "\n\n")
    return path


def test_columns_become_a_task(jsonl):
    task = open_data(jsonl, shuffle=False, system="Be brief.").draw().task
    assert (task.id, task.answer, dict(task.metadata)) == ("t0", "0", {"level": 0})
    assert task.messages == ({"role": "system", "content": "Be brief."}, {"role": "user", "content": "p0"})


def test_parquet_says_the_same_as_jsonl(jsonl, tmp_path):
    rows = [json.loads(line) for line in jsonl.read_text().splitlines() if line]
    path = tmp_path / "tasks.parquet"
    pa.parquet.write_table(pa.Table.from_pylist(rows), path)
    a, b = open_data(jsonl), open_data(path)
    assert [a.draw() for _ in range(6)] == [b.draw() for _ in range(6)]


def test_each_epoch_has_every_task_once_in_another_order_from_the_seed(jsonl):
    data, again = open_data(jsonl), open_data(jsonl)
    first, second = draws(data, 6), draws(data, 6)
    assert sorted(t for t, _ in first) == sorted(t for t, _ in second) == [f"t{i}" for i in range(6)]
    assert [t for t, _ in first] != [t for t, _ in second]
    assert {n for _, n in first} == {0} and {n for _, n in second} == {1}
    assert draws(again, 12) == first + second


def test_restoring_continues_at_the_same_task(jsonl):
    data = open_data(jsonl)
    draws(data, 8)
    state = json.loads(json.dumps(data.state()))
    rest = draws(data, 5)
    fresh = open_data(jsonl)
    fresh.restore(state)
    assert draws(fresh, 5) == rest


def test_finite_data_ends(jsonl):
    data = open_data(jsonl, epochs=2)
    assert data.size() == 12
    assert len(draws(data, 20)) == 12
    assert data.draw() is None


def test_messages_win_over_the_prompt(tmp_path):
    path = tmp_path / "m.jsonl"
    path.write_text(json.dumps({"prompt": "x", "messages": [{"role": "user", "content": "y"}]}))
    assert open_data(path).draw().task.messages == ({"role": "user", "content": "y"},)


def test_every_fault_of_a_file_is_listed_with_its_line(tmp_path):
    path = tmp_path / "bad.jsonl"
    path.write_text(
        '{"prompt": "ok"}\n{"answer": 1}\nnot json\n[1]\n{"prompt": ""}\n{"messages": [{"role": "user"}]}\n'
    )
    with pytest.raises(RequestError) as caught:
        open_data(path)
    text = str(caught.value)
    for line, says in ((2, "neither"), (3, "not JSON"), (4, "list"), (5, "expected text"), (6, "role and content")):
        assert f"bad.jsonl:{line}" in text
        assert says in text


@pytest.mark.parametrize("content", ["", "\n\n"])
def test_an_empty_file_is_refused(tmp_path, content):
    path = tmp_path / "empty.jsonl"
    path.write_text(content)
    with pytest.raises(RequestError, match="no rows"):
        open_data(path)


def test_missing_and_foreign_files_are_refused(tmp_path):
    with pytest.raises(RequestError, match="cannot be read"):
        open_data(tmp_path / "none.jsonl")
    fake = tmp_path / "fake.parquet"
    fake.write_bytes(b"not parquet at all")
    with pytest.raises(RequestError, match="not a Parquet file"):
        open_data(fake)


def test_equal_ids_are_refused(tmp_path):
    path = tmp_path / "same.jsonl"
    path.write_text('{"id": "a", "prompt": "x"}\n{"id": "a", "prompt": "y"}\n')
    with pytest.raises(RequestError, match="2 rows have the id 'a'"):
        open_data(path)


def test_held_out_tasks_come_from_their_own_file(jsonl, tmp_path):
    with pytest.raises(RequestError, match="held_out"):
        open_data(jsonl).held_out(2)
    other = tmp_path / "other.jsonl"
    other.write_text('{"id": "h0", "prompt": "x"}\n{"id": "h1", "prompt": "y"}\n')
    assert [t.id for t in open_data(jsonl, held_out=other).held_out(1)] == ["h0"]
