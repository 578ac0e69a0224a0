"""A tracker: takes a run's metrics, step by step, and never stands in its way."""

from __future__ import annotations

import threading
from typing import Any

from miles_core.testing.kit.check import Grade, check, expect
from miles_core.testing.kit.processes import children
from miles_core.testing.kit.subject import ComponentSubject

DONE, FAILED, INTERRUPTED = "done", "failed", "interrupted"
"""How a run ends, in the words that the loop has for it."""


@check("tracker", Grade.GOLD, "it takes a run of several steps, with metrics that come and go")
def takes_a_run(subject: ComponentSubject) -> None:
    tracker = _started(subject)
    tracker.log(0, _metrics())
    tracker.log(1, {**_metrics(), "evaluation/held-out/score": 0.25})
    tracker.log(2, {})
    tracker.close(DONE)


@check("tracker", Grade.GOLD, "a resumed run goes on, and one that failed or was interrupted is closed")
def resumes(subject: ComponentSubject) -> None:
    for outcome, steps in ((FAILED, (0, 1)), (INTERRUPTED, (1,)), (DONE, (1, 2))):
        tracker = _started(subject)
        for step in steps:
            tracker.log(step, _metrics())
        tracker.close(outcome)


@check("tracker", Grade.GOLD, "it changes nothing of what it is given, and keeps no thread or process after close")
def leaves_nothing(subject: ComponentSubject) -> None:
    threads, processes = set(threading.enumerate()), children()
    recipe, metrics = _recipe(), _metrics()
    tracker = subject.build()
    tracker.start("kit-run", recipe)
    tracker.log(0, metrics)
    tracker.close(DONE)
    expect(metrics == _metrics(), f"it changed the metrics into {metrics}", "copy what you change: others read them")
    expect(recipe == _recipe(), f"it changed the recipe into {recipe}", "copy what you change: others read it")
    left = [thread for thread in set(threading.enumerate()) - threads if thread.is_alive() and not thread.daemon]
    expect(not left, f"threads are left: {[thread.name for thread in left]}", "join them in close()")
    more = children() - processes
    expect(not more, f"processes are left: {sorted(more)}", "end them in close()")


def _started(subject: ComponentSubject) -> Any:
    tracker = subject.build()
    tracker.start("kit-run", _recipe())
    return tracker


def _recipe() -> dict[str, Any]:
    """Fresh each time: what one check's tracker does to it must not reach another."""
    return {"miles": 1, "name": "kit", "steps": 2, "model": {"use": "toy"}, "rewards": [{"use": "match"}]}


def _metrics() -> dict[str, float]:
    return {"reward/mean": 0.5, "rollout/tokens": 128, "loss/total": -1.5e-7, "buffer/filtered/all-equal-0": 3.0}
