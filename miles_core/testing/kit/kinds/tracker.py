"""A tracker: takes a run's metrics, step by step, and never stands in its way."""

from __future__ import annotations

import threading

from miles_core.testing.kit.check import Grade, check, expect
from miles_core.testing.kit.processes import children
from miles_core.testing.kit.subject import ComponentSubject

RECIPE = {"miles": 1, "name": "kit", "steps": 2, "model": {"use": "toy"}, "rewards": [{"use": "match"}]}
METRICS = {"reward/mean": 0.5, "rollout/tokens": 128, "loss/total": -1.5e-7, "buffer/filtered/all-equal-0": 3.0}


@check("tracker", Grade.GOLD, "it takes a run of several steps, with metrics that come and go")
def takes_a_run(subject: ComponentSubject) -> None:
    tracker = subject.build()
    tracker.start("kit-run", RECIPE)
    tracker.log(0, METRICS)
    tracker.log(1, {**METRICS, "evaluation/held-out": 0.25})
    tracker.log(2, {})
    tracker.close("finished")


@check("tracker", Grade.GOLD, "a resumed run goes on, and one that failed is closed")
def resumes(subject: ComponentSubject) -> None:
    for outcome, steps in (("failed: the engine died", (0, 1)), ("finished", (1, 2))):
        tracker = subject.build()
        tracker.start("kit-run", RECIPE)
        for step in steps:
            tracker.log(step, METRICS)
        tracker.close(outcome)


@check("tracker", Grade.GOLD, "it changes nothing of what it is given, and keeps no thread or process after close")
def leaves_nothing(subject: ComponentSubject) -> None:
    threads, processes = set(threading.enumerate()), children()
    recipe, metrics = repr(RECIPE), dict(METRICS)
    tracker = subject.build()
    tracker.start("kit-run", RECIPE)
    tracker.log(0, metrics)
    tracker.close("finished")
    expect(metrics == METRICS and repr(RECIPE) == recipe, "it changed what it was given", "copy what you change")
    left = [thread for thread in set(threading.enumerate()) - threads if thread.is_alive() and not thread.daemon]
    expect(not left, f"threads are left: {[thread.name for thread in left]}", "join them in close()")
    more = children() - processes
    expect(not more, f"processes are left: {sorted(more)}", "end them in close()")
