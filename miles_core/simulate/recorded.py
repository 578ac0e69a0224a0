"""Recorded lengths: of a run's trajectories, or of a table that somebody made."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from miles_core.errors import Problem, RequestError
from miles_core.observe.runs import find_run
from miles_core.observe.trajectories import files
from miles_core.simulate.lengths import EXAMPLES, MOST_TOKENS, Recorded, Work
from miles_core.types.trajectory import Disposition, Status

_COLUMNS = ["entry", "status", "disposition", "reward", "sequences"]
Row = tuple[Hashable, Work, str]
"""The group, the attempt, and what became of it (empty: nobody knows)."""


def read_recorded(text: str, runs_dir: Path) -> Recorded:
    """Of a run (by name or folder), a folder of trajectories, one of its files, or a table of lengths. Raises
    RequestError when it is none, or has no attempt that an engine made."""
    path = Path(text)
    try:
        if path.is_file():
            table = _read(path)
            rows = rows_of_run(path.name, table) if set(_COLUMNS) <= {*table.column_names} else _of_table(path, table)
        else:
            rows = _of_folder(path if path.is_dir() and not (path / "run.json").exists() else None, text, runs_dir)
    except (pa.ArrowException, OSError) as error:
        raise RequestError(f"cannot be read: {error}", where=f"--lengths {text}") from error
    groups: dict[Hashable, list[Work]] = defaultdict(list)
    for group, work, _ in rows:
        groups[group].append(work)
    if not groups:
        raise RequestError("has no attempt that an engine made", where=f"--lengths {text}", mend=f"such as {EXAMPLES}")
    return Recorded(text, [tuple(members) for members in groups.values()])


def _of_folder(folder: Path | None, name: str, runs_dir: Path) -> list[Row]:
    if folder is None:
        try:
            folder = find_run(runs_dir, name).trajectories
        except RequestError as error:
            what = "is no file, no distribution, and no run"
            raise RequestError(what, where=f"--lengths {name}", mend=f"such as {EXAMPLES}") from error
    return [row for path, _ in files(folder) for row in rows_of_run(path.name, read_run_file(path))]


def _read(path: Path) -> pa.Table:
    return pa.csv.read_csv(path) if path.suffix == ".csv" else pq.read_table(path)


def read_run_file(path: Path) -> pa.Table:
    return pq.read_table(path, columns=_COLUMNS)


def rows_of_run(file: str, table: pa.Table) -> Iterable[Row]:
    """Training's attempts that an engine sampled. Lengths are counted without looking at single tokens from Python."""
    sequences = table["sequences"].combine_chunks()
    if not len(sequences):
        return []
    flat = sequences.values
    tokens = _counts(flat.field("tokens"), None)
    sampled = _counts(flat.field("sampled"), flat.field("sampled").values.to_numpy(zero_copy_only=False))
    mine = ~flat.field("logprobs").is_null().to_numpy(zero_copy_only=False)
    bounds = sequences.offsets.to_numpy()
    facts = table.select(_COLUMNS[:-1]).to_pylist()
    rows = []
    for number, (row, start, stop) in enumerate(zip(facts, bounds[:-1], bounds[1:], strict=True)):
        output = int(sampled[start:stop].sum())
        if not output or not mine[start:stop].all() or row["disposition"] == Disposition.EVALUATION.value:
            continue
        prompt = int(tokens[start:stop].sum()) - output
        try:
            work = Work(prompt, output, _reward(row), Status(row["status"]))
        except ValueError as error:
            raise RequestError(str(error), where=f"{file}, row {number}") from error
        rows.append(((file, row["entry"]), work, row["disposition"]))
    return rows


def _counts(lists: Any, values: Any) -> Any:
    """Of each list its length, or the sum of its values."""
    bounds = lists.offsets.to_numpy()
    if values is None:
        return np.diff(bounds)
    sums = np.concatenate([[0], np.cumsum(values)])
    return sums[bounds[1:]] - sums[bounds[:-1]]


def _of_table(path: Path, table: pa.Table) -> list[Row]:
    missing = [name for name in ("prompt", "output") if name not in table.column_names]
    if missing:
        raise RequestError(
            [Problem(f"has no column {name!r}, only {', '.join(table.column_names)}", str(path)) for name in missing]
        )
    rows, problems = [], []
    for number, row in enumerate(table.to_pylist()):
        try:
            status = Status(row.get("status") or "completed")
            work = Work(_tokens(row, "prompt", 0), _tokens(row, "output", 1), _reward(row), status)
        except ValueError as error:
            problems.append(Problem(str(error), f"{path}, row {number}"))
            continue
        rows.append((row.get("group", number), work, ""))
    if problems:
        raise RequestError(problems[:10])
    return rows


def _tokens(row: Mapping[str, Any], column: str, least: int) -> int:
    value = row[column]
    if not isinstance(value, int | float) or not least <= value <= MOST_TOKENS:
        raise ValueError(f"{column} is {value!r}, expected a number of tokens from {least} to {MOST_TOKENS:g}")
    return int(value)


def _reward(row: Mapping[str, Any]) -> float | None:
    value = row.get("reward")
    if value is not None and (not isinstance(value, int | float) or not math.isfinite(value)):
        raise ValueError(f"reward is {value!r}, expected a finite number, or none")
    return value
