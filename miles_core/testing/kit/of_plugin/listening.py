"""Event hooks: told of a made-up run, from its beginning to both of its ends."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from miles_core.errors import PluginError
from miles_core.host.activate import open_registry
from miles_core.testing.kit.check import Grade, check, fail, inapplicable
from miles_core.testing.kit.subject import PluginSubject

RUN = "kit-20260101-120000-0000"


@check("", Grade.GOLD, "its event hooks take what a run tells them, without raising")
def hooks_hear_a_run(subject: PluginSubject) -> None:
    fresh = open_registry([f"{subject.plugin.distribution}:{subject.plugin.name}"], subject.registry.index)
    fresh.watch(strict=True)
    for name, facts in made_up_run(subject.folder):
        try:
            fresh.emit(name, **facts, run=RUN)
        except PluginError as error:
            problem = error.problems[0]
            place = f" ({problem.where})" if problem.where else ""
            fail(
                f"{problem.what}{place}; it was told {_written(facts)}",
                "repair it: which metrics there are depends on the recipe (`metrics.get(name)`), and a score or reward "
                "may be None",
            )
    heard = [use for use in fresh.summary() if use.plugin == subject.plugin and use.calls]
    if not heard:
        inapplicable("it listens to no event of a run")


def made_up_run(folder: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Every event with its facts, in the order of a run that is done, then of one that failed."""
    checkpoint = folder / "checkpoints" / "step-000001"
    checkpoint.mkdir(parents=True)
    yield "run_started", {"folder": folder, "recipe": _recipe()}
    yield "weights_published", {"version": 1, "seconds": 0.25}
    yield "evaluated", {"name": "held-out", "step": 0, "version": 1, "score": 0.5, "skipped": ""}
    yield "group_finished", {"group": "0", "task": "sum-1", "disposition": "buffered", "reward": 0.5}
    yield "group_finished", {"group": "1", "task": "sum-2", "disposition": "aborted", "reward": None}
    for step in range(2):
        yield "step_finished", {"step": step, "metrics": _metrics(step)}
        yield "weights_published", {"version": step + 2, "seconds": 0.25}
    yield "evaluated", {"name": "held-out", "step": 1, "version": 2, "score": None, "skipped": "the engine died"}
    yield "checkpoint_saved", {"step": 1, "folder": checkpoint}
    yield "run_finished", {"folder": folder, "steps": 2}
    yield "run_started", {"folder": folder, "recipe": _recipe()}
    for interrupted, error in ((False, "worker 'trainer' died"), (True, "interrupted")):
        yield "run_failed", {"folder": folder, "error": error, "interrupted": interrupted}


def _recipe() -> dict[str, Any]:
    return {
        "miles": 1,
        "name": "kit",
        "seed": 1,
        "plugins": ["toy"],
        "model": {"use": "toy"},
        "schedule": {"use": "sync", "groups_per_step": 2, "group_size": 4},
        "rewards": [{"use": "match", "name": "match", "weight": 1.0}],
        "steps": 2,
    }


def _metrics(step: int) -> Mapping[str, float]:
    return {
        "step": step,
        "version": step + 1,
        "rollout/groups": 2,
        "rollout/tokens": 128,
        "reward/mean": 0.5,
        "loss/total": -1.5e-7,
        "trainer/grad_norm": 0.01,
        "time/rollout": 0.5,
        "time/train": 0.25,
        "time/step": 1.0,
        "time/tokens_per_second": 128.0,
    }


def _written(facts: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}={value!r:.60}" for name, value in facts.items())
