"""What lies in the folder in which components are built, so that an `example` can name real files."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

TASKS, HELD_OUT, RUN, MODEL = "tasks.jsonl", "held_out.jsonl", "run", "model"
"""Names that an example may use: eight tasks, four others, a run that saved eight groups, a Hugging Face directory."""


@contextlib.contextmanager
def workplace(folder: Path, example: Mapping[str, Any]) -> Iterator[None]:
    """Be in `folder`, with the files that an example may name."""
    lay_out(folder, example)
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def lay_out(folder: Path, example: Mapping[str, Any]) -> None:
    """Write the files; the run and the model only when the example asks for them."""
    folder.mkdir(parents=True, exist_ok=True)
    _write(folder / TASKS, "train", 8)
    _write(folder / HELD_OUT, "held", 4)
    if _names(example, RUN):
        _save_run(folder / RUN)
    if _names(example, MODEL):
        from miles_core.testing.fakes.tiny_model import tiny_model

        tiny_model(folder / MODEL)


def _names(value: Any, name: str) -> bool:
    if isinstance(value, Mapping):
        return any(_names(each, name) for each in value.values())
    return bool(value == name)


def _write(file: Path, prefix: str, count: int) -> None:
    rows = [{"id": f"{prefix}-{n}", "prompt": f"{prefix} {n}+1=", "answer": str(n + 1)} for n in range(count)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


def _save_run(folder: Path) -> None:
    from miles_core.observe.trajectories import write_groups
    from miles_core.testing.fakes.makers import make_group, make_task
    from miles_core.types.trajectory import Disposition

    groups = [
        make_group(("1", "2"), (1.0, 0.0), task=make_task(f"{n}+1=", str(n + 1), id=f"saved-{n}"), number=n)
        for n in range(8)
    ]
    (folder / "trajectories").mkdir(parents=True, exist_ok=True)
    for step in range(2):
        entries = [
            (group, {t.id: Disposition.TRAINED for t in group.trajectories})
            for group in groups[4 * step : 4 * step + 4]
        ]
        write_groups(folder / "trajectories", f"step-{step:06d}", entries, step=step)
