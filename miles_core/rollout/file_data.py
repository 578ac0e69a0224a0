"""The `file` data source: tasks from a JSONL or Parquet file.

A row has a prompt (text) or messages (a list of chat messages, which may show images: file_images.py), perhaps an
answer and an id; every other column becomes metadata. All faults of the file are reported at once, by line.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from miles_core.contracts.component import BuildContext
from miles_core.contracts.images import has_images
from miles_core.contracts.options import Options
from miles_core.contracts.rollout import Draw
from miles_core.errors import Problem, RequestError
from miles_core.rollout.file_images import with_images
from miles_core.types.task import Task

SHOWN_PROBLEMS = 20


class FileDataOptions(Options):
    """Where the tasks are, and which column is what. Paths are relative to the current directory."""

    path: Path = Field(description="a .jsonl or .parquet file")
    held_out: Path | None = Field(default=None, description="a file of tasks that are only evaluated")
    prompt: str = Field(default="prompt", description="column of the prompt as text")
    messages: str = Field(default="messages", description="column of the prompt as chat messages; wins over `prompt`")
    answer: str = Field(default="answer", description="column of the label")
    id: str = Field(default="id", description="column of the id; rows without one are numbered by line")
    system: str | None = Field(default=None, description="a system message to put before every prompt")
    shuffle: bool = Field(default=True, description="another order in each epoch, from the run's seed")
    epochs: int | None = Field(default=None, gt=0, description="how often to go through the file; endless when absent")


class FileData:
    """See `contracts.rollout.Data`."""

    def __init__(self, options: FileDataOptions, context: BuildContext) -> None:
        self._options = options
        self._seed = context.seed
        self._tasks = _read_tasks(options.path, options)
        self._digest = _digest(options.path, self._tasks)
        self._position = 0
        self._order_of: tuple[int, list[int]] = (-1, [])

    def draw(self) -> Draw | None:
        size = self.size()
        if size is not None and self._position >= size:
            return None
        epoch, place = divmod(self._position, len(self._tasks))
        self._position += 1
        return Draw(self._tasks[self._order(epoch)[place]], epoch)

    def held_out(self, count: int) -> list[Task]:
        if self._options.held_out is None:
            raise RequestError(
                f"data {str(self._options.path)!r} has no held-out tasks to evaluate",
                mend="set `held_out:` of the data to a file of other tasks",
            )
        return _read_tasks(self._options.held_out, self._options)[:count]

    def size(self) -> int | None:
        return None if self._options.epochs is None else self._options.epochs * len(self._tasks)

    def state(self) -> Mapping[str, Any]:
        return {"position": self._position, "sha256": self._digest}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Raises RequestError when the file is not the one that the state was taken with."""
        if state["sha256"] != self._digest:
            raise RequestError(
                "the file has changed since the run that is resumed",
                where=str(self._options.path),
                mend="restore it as it was, or start a new run",
            )
        self._position = state["position"]

    def _order(self, epoch: int) -> list[int]:
        if self._order_of[0] != epoch:
            order = list(range(len(self._tasks)))
            if self._options.shuffle:
                random.Random(f"{self._seed}/file-data/{epoch}").shuffle(order)
            self._order_of = (epoch, order)
        return self._order_of[1]


def _digest(path: Path, tasks: list[Task]) -> str:
    """Of the file, and of the images that it names."""
    found = hashlib.sha256(path.read_bytes())
    for task in tasks:
        if has_images(task.messages):
            found.update(json.dumps(task.prompt, default=str).encode())
    return found.hexdigest()


def _read_tasks(path: Path, options: FileDataOptions) -> list[Task]:
    tasks: list[Task] = []
    problems: list[Problem] = []
    for line, row in _rows(path, problems):
        try:
            tasks.append(_task(path, line, row, options))
        except ValueError as error:
            problems.append(Problem(str(error), f"{path}:{line}"))
    ids = Counter(task.id for task in tasks)
    problems += [Problem(f"{n} rows have the id {task_id!r}", str(path)) for task_id, n in ids.items() if n > 1]
    if not tasks and not problems:
        problems.append(Problem("the file has no rows", str(path), "give it at least one task"))
    if problems:
        more = len(problems) - SHOWN_PROBLEMS
        shown = problems[:SHOWN_PROBLEMS] + ([Problem(f"and {more} more", str(path))] if more > 0 else [])
        raise RequestError(shown)
    return tasks


def _rows(path: Path, problems: list[Problem]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    """(line or row number from 1, columns)"""
    try:
        if path.suffix == ".parquet":
            yield from enumerate(_parquet_rows(path), start=1)
            return
        with path.open(encoding="utf-8") as file:
            yield from _json_rows(path, file, problems)
    except (OSError, UnicodeDecodeError) as error:
        what = (error.strerror or str(error)) if isinstance(error, OSError) else f"not UTF-8: {error}"
        problems.append(Problem(f"cannot be read: {what}", str(path), "check the data's path and format"))


def _parquet_rows(path: Path) -> list[dict[str, Any]]:
    import pyarrow
    import pyarrow.parquet

    try:
        rows: list[dict[str, Any]] = pyarrow.parquet.read_table(path).to_pylist()
    except pyarrow.ArrowInvalid as error:
        raise OSError(f"not a Parquet file: {error}") from error
    return rows


def _json_rows(path: Path, file: Any, problems: list[Problem]) -> Iterator[tuple[int, Mapping[str, Any]]]:
    for line, text in enumerate(file, start=1):
        if not text.strip():
            continue
        try:
            row = json.loads(text)
        except json.JSONDecodeError as error:
            problems.append(Problem(f"not JSON: {error.msg} at column {error.colno}", f"{path}:{line}"))
            continue
        if isinstance(row, dict):
            yield line, row
        else:
            problems.append(Problem(f"a {type(row).__name__}, expected an object", f"{path}:{line}"))


def _task(path: Path, line: int, row: Mapping[str, Any], options: FileDataOptions) -> Task:
    """The task of a row. Raises ValueError (ValidationError is one) saying what is wrong with it."""
    messages, prompt = row.get(options.messages), row.get(options.prompt)
    if messages is None and prompt is None:
        raise ValueError(f"the row has neither {options.prompt!r} nor {options.messages!r}")
    if messages is None:
        if not isinstance(prompt, str) or not prompt:
            raise ValueError(f"column {options.prompt!r} is {prompt!r}, expected text")
        messages = [{"role": "user", "content": prompt}]
    if not _are_messages(messages):
        raise ValueError(
            f"column {options.messages!r} is {messages!r}, expected a list of messages with role and content"
        )
    if has_images(messages) or _shows(messages):
        messages = with_images(messages, path.parent)
    if options.system is not None:
        messages = [{"role": "system", "content": options.system}, *messages]
    answer = row.get(options.answer)
    known = {options.messages, options.prompt, options.answer, options.id}
    return Task(
        id=str(row.get(options.id) or f"{path.stem}:{line}"),
        prompt=tuple(messages),
        answer=None if answer is None else str(answer),
        metadata={key: value for key, value in row.items() if key not in known},
    )


def _shows(messages: list[Any]) -> bool:
    """Whether an image stands in the form that datasets have."""
    parts = (part for message in messages if isinstance(message["content"], list) for part in message["content"])
    return any(isinstance(part, Mapping) and part.get("type") == "image" for part in parts)


def _are_messages(value: Any) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(message, Mapping) and "role" in message and "content" in message for message in value)
    )
