"""A whole run, in seconds and without a model: the toy ring with some of its sections replaced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from miles_core.testing.fakes.two_tasks import TwoTasks

if TYPE_CHECKING:
    from miles_core.loop.api import Run
    from miles_core.types.task import Task


def run_recipe(folder: Path, *, strict_plugins: bool = False, **sections: Any) -> Run:
    """Run two steps of the toy model on two tasks, in this process, and return the run.

    `sections` replace top-level sections of the recipe (None removes one); `plugins` are enabled beside `toy`:

        run = run_recipe(tmp_path, plugins=["demo"], rewards=[{"use": "demo"}])
        assert run.metrics[-1]["reward/mean"] > 0

    Raises what `miles_core.run` raises.
    """
    from miles_core.loop.api import run

    _write_tasks(folder / "tasks.jsonl", TwoTasks.TASKS)
    _write_tasks(folder / "held_out.jsonl", TwoTasks.HELD_OUT)
    recipe: dict[str, Any] = {
        "miles": 1,
        "name": "made-up",
        "seed": 1,
        "model": {"use": "toy"},
        "data": {"use": "file", "path": str(folder / "tasks.jsonl"), "held_out": str(folder / "held_out.jsonl")},
        "schedule": {"use": "sync", "groups_per_step": 2, "group_size": 4},
        "generator": {"use": "single-turn", "sampling": {"max_new_tokens": 4}},
        "rewards": [{"use": "match", "mode": "contains"}],
        "advantage": {"use": "toy"},
        "loss": {"use": "toy"},
        "engine": {"use": "toy"},
        "trainer": {"use": "toy"},
        "runtime": {"use": "in-process"},
        "steps": 2,
        **sections,
        "plugins": list(dict.fromkeys(["toy", *sections.get("plugins", ())])),
    }
    chosen = {name: section for name, section in recipe.items() if section is not None}
    return run(chosen, runs_dir=folder / "runs", view="none", strict_plugins=strict_plugins)


def _write_tasks(path: Path, tasks: tuple[Task, ...]) -> None:
    rows = ({"id": task.id, "prompt": task.prompt, "answer": task.answer} for task in tasks)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
