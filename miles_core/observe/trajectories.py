"""The record of what was sampled and what became of it: one Parquet file a step, all that an audit needs.

One row is one trajectory with its group, task and sequences (a group without trajectories is one row whose trajectory
is null). docs/formats.md lists the columns. A file is written whole or not at all; `read_groups` is the exact inverse
of `write_groups`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from collections.abc import Sequence as Several
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from miles_core.errors import RequestError, RunError
from miles_core.observe.atomic import replacing
from miles_core.observe.images import ImageFolder
from miles_core.observe.rows import SCHEMA, group_from_rows, rows_of
from miles_core.types.trajectory import Disposition, Group

FORMAT = "miles.trajectories"
VERSION = 1
SUFFIX = ".parquet"

Entry = tuple[Group, Mapping[str, Disposition]]
"""A group, and the disposition of each of its trajectories by trajectory id."""


def write_groups(folder: Path, stem: str, entries: Several[Entry], *, step: int | None) -> Path:
    """Write `folder/<stem>.parquet` in place of what was there. `step` is the batch that the groups belong to.

    Raises RunError when a trajectory has no disposition, holds data that cannot be stored, or the disk is full.
    """
    path = folder / f"{stem}{SUFFIX}"
    files: dict[str, bytes] = {}
    rows = [row for entry, (group, facts) in enumerate(entries) for row in rows_of(entry, group, facts, step, files)]
    stamps = {"miles.format": FORMAT, "miles.version": str(VERSION), "miles.step": "" if step is None else str(step)}
    try:
        table = pa.Table.from_pylist(rows, schema=SCHEMA.with_metadata(stamps))
    except (pa.ArrowException, UnicodeEncodeError, OverflowError) as error:
        raise RunError(f"the groups of {stem} cannot be stored: {error}", where=str(path)) from error
    _keep_images(folder, entries, files)
    with replacing(path) as draft:
        pq.write_table(table, draft, compression="zstd")
    return path


def _keep_images(folder: Path, entries: Several[Entry], files: Mapping[str, bytes]) -> None:
    """Before the rows that name them, so that what is named is there."""
    images = ImageFolder(folder)
    for name, data in files.items():
        images.keep_file(data, name)
    for group, _ in entries:
        for trajectory in group.trajectories:
            for sequence in trajectory.sequences:
                images.keep(span.image for span in sequence.images)


def read_groups(folder: Path, *, pixels: bool = True) -> Iterator[tuple[int | None, Group, dict[str, Disposition]]]:
    """Every group of the folder, files in order of step and name, groups in the order they were written. Without
    `pixels` images have their facts and no content, and tasks name their files in place of them.

    Raises RequestError naming the file when one is truncated, damaged, or not of this format and version.
    """
    for path, step in files(folder):
        for group, dispositions in read_file(path, pixels=pixels):
            yield step, group, dispositions


def files(folder: Path) -> list[tuple[Path, int | None]]:
    """The folder's files with the step that each belongs to, in order of step and name."""
    return sorted(_steps(folder), key=lambda pair: (pair[1] is not None, pair[1] or 0, pair[0].name))


def read_file(path: Path, *, pixels: bool = True) -> Iterator[tuple[Group, dict[str, Disposition]]]:
    """The groups of one file. Raises RequestError as `read_groups` does."""
    _step_of(path)
    try:
        rows = pq.read_table(path).to_pylist()
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error
    images = ImageFolder(path.parent) if pixels else None
    for _, members in itertools.groupby(rows, key=lambda row: row["entry"]):
        try:
            yield group_from_rows(list(members), images)
        except (KeyError, TypeError, ValueError) as error:
            raise _damaged(path, error) from error


def discard_from(folder: Path, step: int) -> None:
    """Delete what a run resumed after `step` batches will write anew: batches >= `step`, and evaluations made after
    more than `step` batches (the one after exactly `step` came before the checkpoint). Files without a step stay."""
    for path, found in _steps(folder):
        if found is not None and found >= step + _is_evaluation(path):
            path.unlink()


def _steps(folder: Path) -> list[tuple[Path, int | None]]:
    return [(path, _step_of(path)) for path in folder.glob(f"[!.]*{SUFFIX}")]


def _step_of(path: Path) -> int | None:
    try:
        metadata: dict[bytes, bytes] = pq.read_schema(path).metadata or {}
    except (pa.ArrowException, OSError) as error:
        raise _damaged(path, error) from error
    found = (metadata.get(b"miles.format", b"").decode(), metadata.get(b"miles.version", b"").decode())
    if found != (FORMAT, str(VERSION)):
        raise RequestError(
            f"is of format {found[0]!r} version {found[1]!r}, expected {FORMAT!r} version '{VERSION}'",
            where=str(path),
            mend="give a trajectories folder that this version of miles-core wrote",
        )
    step: Any = metadata.get(b"miles.step", b"").decode()
    return int(step) if step else None


def _is_evaluation(path: Path) -> bool:
    """Whether the file holds nothing but evaluated trajectories."""
    kinds: list[str] = pq.read_table(path, columns=["disposition"])["disposition"].unique().to_pylist()
    return kinds == [Disposition.EVALUATION.value]


def _damaged(path: Path, error: Exception) -> RequestError:
    return RequestError(
        f"is truncated or damaged: {type(error).__name__}: {error}",
        where=str(path),
        mend="take the file from another copy of the run, or remove it",
    )
