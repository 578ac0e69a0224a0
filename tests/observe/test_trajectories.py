from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from miles_core.errors import RequestError, RunError
from miles_core.observe.trajectories import discard_from, read_groups, write_groups
from miles_core.types.sequence import Sequence, Span
from miles_core.types.task import Task
from miles_core.types.trajectory import Disposition, Group, Score, Status, Trajectory

finite = st.floats(allow_nan=False, allow_infinity=False)
json_data = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | finite | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=6,
)
mappings = st.dictionaries(st.text(max_size=4), json_data, max_size=3)


@st.composite
def sequences(draw: st.DrawFn) -> Sequence:
    n = draw(st.integers(1, 12))
    tokens = np.array(draw(st.lists(st.integers(0, 2**31 - 1), min_size=n, max_size=n)), dtype=np.int32)
    mask = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), dtype=np.bool_)
    routing = None
    if draw(st.booleans()):
        dtype = draw(st.sampled_from([np.uint8, np.uint16, np.int32]))
        shape = (n - 1, draw(st.integers(1, 3)), draw(st.integers(1, 2)))
        routing = np.arange(np.prod(shape), dtype=dtype).reshape(shape)
    if draw(st.booleans()):
        return Sequence(tokens, mask, None, np.zeros(n, np.int32), (), routing)
    logprobs = np.zeros(n, np.float32)
    logprobs[mask] = draw(st.lists(st.floats(-100, 0, width=32), min_size=int(mask.sum()), max_size=int(mask.sum())))
    spans, versions = [], np.zeros(n, np.int32)
    for place in np.flatnonzero(mask):
        version = draw(st.integers(1, 5))
        versions[place] = version
        spans.append(
            Span(int(place), int(place) + 1, version, "e", draw(st.text(max_size=3)), 1, draw(st.floats(0, 2)))
        )
    return Sequence(tokens, mask, logprobs, versions, tuple(spans), routing)


@st.composite
def groups(draw: st.DrawFn) -> Group:
    message = st.fixed_dictionaries({"role": st.just("user"), "content": st.text()})
    prompt = draw(st.text(min_size=1) | st.lists(message, min_size=1, max_size=2).map(tuple))
    task = Task(draw(st.text(min_size=1)), prompt, draw(st.none() | st.text()), draw(mappings))
    number = draw(st.integers(0, 10**6))
    scores = st.dictionaries(st.text(max_size=3), st.none() | st.builds(Score, finite, st.text(max_size=5)), max_size=2)
    members = []
    for index in range(draw(st.integers(0, 3))):
        failed = draw(st.booleans())
        members.append(
            Trajectory(
                id=f"g{number}.{index}",
                task_id=task.id,
                index=index,
                sequences=tuple(draw(st.lists(sequences(), min_size=0 if failed else 1, max_size=2))),
                status=Status.FAILED if failed else draw(st.sampled_from([Status.COMPLETED, Status.TRUNCATED])),
                text=draw(st.text()),
                reward=draw(st.none() | finite),
                scores=draw(scores),
                metadata=draw(mappings),
            )
        )
    return Group(task, number, draw(st.integers(0, 5)), tuple(members))


def plain(value: Any) -> Any:
    """Nested plain data that `==` compares, array dtypes included."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if isinstance(value, np.ndarray):
        return (str(value.dtype), value.shape, value.tolist())
    if isinstance(value, tuple | list):
        return [type(value).__name__, *map(plain, value)]
    return value


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(groups(), max_size=3), st.none() | st.integers(0, 10**6), st.data())
def test_what_is_written_is_read(
    tmp_path_factory: Any, some: list[Group], step: int | None, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("trajectories")
    dispositions = st.sampled_from(list(Disposition))
    entries = [(group, {t.id: data.draw(dispositions) for t in group.trajectories}) for group in some]
    path = write_groups(folder, "step-000000", entries, step=step)
    found = list(read_groups(folder))
    assert [(plain(group), facts) for _, group, facts in found] == [(plain(group), facts) for group, facts in entries]
    assert all(where == step for where, _, _ in found)
    assert list(folder.iterdir()) == [path]


def one_group(number: int = 0, **changes: Any) -> Group:
    sequence = Sequence(
        np.array([5, 6], np.int32),
        np.array([False, True]),
        np.array([0, -0.5], np.float32),
        np.array([0, 1], np.int32),
        (Span(1, 2, 1, "e", "r"),),
    )
    return Group(
        Task("t", "p"),
        number,
        0,
        (Trajectory(**{"id": "a", "task_id": "t", "index": 0, "sequences": (sequence,), **changes}),),
    )


def write(folder: Path, stem: str, step: int | None, what: Disposition = Disposition.TRAINED, number: int = 0) -> Path:
    return write_groups(folder, stem, [(one_group(number), {"a": what})], step=step)


def test_the_same_group_twice_stays_twice(tmp_path: Path) -> None:
    write_groups(tmp_path, "s-0", [(one_group(), {"a": Disposition.TRAINED})] * 2, step=0)
    assert len(list(read_groups(tmp_path))) == 2


def test_files_are_read_in_order_of_step(tmp_path: Path) -> None:
    for step in (10, 9, 2):
        write(tmp_path, f"step-{step}", step, number=step)
    assert [(step, group.number) for step, group, _ in read_groups(tmp_path)] == [(2, 2), (9, 9), (10, 10)]


def test_numpy_values_in_metadata_become_plain_ones(tmp_path: Path) -> None:
    group = one_group(metadata={"x": np.float32(0.5), "y": np.arange(2)})
    write_groups(tmp_path, "s-0", [(group, {"a": Disposition.TRAINED})], step=0)
    [(_, found, _)] = read_groups(tmp_path)
    assert found.trajectories[0].metadata == {"x": 0.5, "y": [0, 1]}


def test_what_cannot_be_stored_is_refused_by_name_and_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="metadata of trajectory 'a'"):
        write_groups(tmp_path, "s-0", [(one_group(metadata={"x": object()}), {"a": Disposition.TRAINED})], step=0)
    with pytest.raises(RunError, match="cannot be stored"):
        write_groups(tmp_path, "s-0", [(one_group(text="\ud800"), {"a": Disposition.TRAINED})], step=0)
    with pytest.raises(RunError, match="'a' has no disposition"):
        write_groups(tmp_path, "s-0", [(one_group(), {})], step=0)
    assert list(tmp_path.iterdir()) == []


def test_a_resumed_run_forgets_what_it_will_do_again(tmp_path: Path) -> None:
    """After k batches come, in this order: evaluation k, checkpoint k, batch k."""
    for step in range(4):
        write(tmp_path, f"evaluation-held-out-{step}", step, Disposition.EVALUATION)
        write(tmp_path, f"step-{step}", step)
    write(tmp_path, "rollout-only", None)
    discard_from(tmp_path, 2)
    assert {path.stem for path in tmp_path.iterdir()} == {
        "evaluation-held-out-0", "evaluation-held-out-1", "evaluation-held-out-2", "step-0", "step-1", "rollout-only",
    }  # fmt: skip


@pytest.mark.parametrize("size", [0, 3, 100, -20])
def test_a_truncated_file_is_refused_by_name(tmp_path: Path, size: int) -> None:
    path = write(tmp_path, "step-0", 0)
    content = path.read_bytes()
    path.write_bytes(content[:size])
    with pytest.raises(RequestError, match=r"step-0\.parquet"):
        list(read_groups(tmp_path))


def test_a_damaged_middle_is_refused_by_name(tmp_path: Path) -> None:
    path = write(tmp_path, "step-0", 0)
    content = bytearray(path.read_bytes())
    content[4:400] = bytes(396)
    path.write_bytes(bytes(content))
    with pytest.raises(RequestError, match=r"step-0\.parquet"):
        list(read_groups(tmp_path))


def test_a_foreign_parquet_file_is_refused(tmp_path: Path) -> None:
    import pyarrow as pa

    pq.write_table(pa.table({"x": [1]}), tmp_path / "foreign.parquet")
    with pytest.raises(RequestError, match="format"):
        list(read_groups(tmp_path))


@pytest.mark.parametrize("column", ["text", "reward", "scores", "metadata", "step"])
def test_columns_that_hold_nothing_essential_may_be_missing(tmp_path: Path, column: str) -> None:
    path = write(tmp_path, "step-0", 0)
    table = pq.read_table(path)
    pq.write_table(table.drop_columns([column]), path)
    [(_, group, _)] = read_groups(tmp_path)
    assert group.trajectories[0].sequences[0].tokens.tolist() == [5, 6]


def test_an_essential_column_may_not_be_missing(tmp_path: Path) -> None:
    path = write(tmp_path, "step-0", 0)
    pq.write_table(pq.read_table(path).drop_columns(["sequences"]), path)
    with pytest.raises(RequestError, match="sequences"):
        list(read_groups(tmp_path))


FULL = """
import resource, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from made_up import all_of, group
from miles_core.errors import RunError
from miles_core.observe.trajectories import write_groups
from miles_core.types.trajectory import Disposition
one = group(0, 64)
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
    write_groups(Path(sys.argv[1]), "step-0", [(one, all_of(one, Disposition.TRAINED))], step=0)
except RunError as error:
    print(error)
    sys.exit(error.exit_code)
"""


def test_a_full_disk_leaves_no_half_file(tmp_path: Path) -> None:
    command = [sys.executable, "-c", FULL, str(tmp_path), str(Path(__file__).parent)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    assert "step-0.parquet" in done.stdout
    assert list(tmp_path.iterdir()) == []
