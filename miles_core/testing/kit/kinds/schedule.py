"""A schedule: the object that the driver asks when groups may start and when weights are published."""

from __future__ import annotations

import json

from miles_core.contracts.options import ScheduleOptions
from miles_core.contracts.pace import Pace
from miles_core.contracts.rollout import Schedule
from miles_core.testing.kit.check import Grade, check, expect, inapplicable
from miles_core.testing.kit.subject import ComponentSubject

STEPS = 200


@check("schedule", Grade.GOLD, "its batch is as its options say, and it has a pace")
def batch_arithmetic(subject: ComponentSubject) -> None:
    options, schedule = subject.options(), subject.build()
    is_one = isinstance(options, ScheduleOptions)
    expect(is_one, f"its options are {type(options).__name__}", "inherit miles_core.ScheduleOptions")
    for name in ("group_size", "groups_per_step"):
        found, wanted = getattr(schedule, name), getattr(options, name)
        expect(found == wanted, f"{name} is {found}, the options say {wanted}", "take it from the options")
    expect(isinstance(schedule.pace, Pace), f"its pace is {schedule.pace!r:.100}", "give a miles_core.Pace")


@check("schedule", Grade.GOLD, "before a batch is taken, it may be made, and what may be made never becomes less")
def reaches_every_batch(subject: ComponentSubject) -> None:
    schedule: Schedule = subject.build()
    reached = 0
    for step in range(STEPS):
        for taken in (False, True):
            reach = schedule.reach(step, taken)
            if reach is None:
                return
            expect(isinstance(reach, int), f"reach({step}, {taken}) is {reach!r}", "an int, or None for all there are")
            expect(
                reach >= step + 1,
                f"reach({step}, {taken}) is {reach}: batch {step} is waited for and may not be made",
                "batches 0 to `step` may be under way before batch `step` is taken: at least step + 1",
            )
            expect(reach >= reached, f"reach falls from {reached} to {reach} at step {step}", "never take back a grant")
            reached = reach


@check("schedule", Grade.GOLD, "weights are published, and its answers are a function of the step alone")
def publishes(subject: ComponentSubject) -> None:
    schedule, resumed = subject.build(), subject.build()
    first = [(schedule.reach(step, False), schedule.publishes(step)) for step in range(STEPS)]
    expect(all(isinstance(each, bool) for _, each in first), "publishes gave no bool", "return True or False")
    expect(
        any(each for _, each in first), f"nothing is published in {STEPS} steps", "publish sometimes, or never learn"
    )
    middle = STEPS // 2
    later = [(resumed.reach(step, False), resumed.publishes(step)) for step in range(middle, STEPS)]
    expect(
        later == first[middle:],
        f"a run that is resumed at step {middle} gets other answers than one that came there",
        "answer from the step alone",
    )


@check("schedule", Grade.GOLD, "one that adapts says each change in words, and a resumed one goes on the same")
def adapts(subject: ComponentSubject) -> None:
    schedule = subject.build()
    if not hasattr(schedule, "adapt"):
        inapplicable("it does not adapt")
    schedule.begin(4 * schedule.groups_per_step)
    for step in range(1, STEPS):
        before = (schedule.pace, schedule.room, dict(schedule.settings()))
        waits = (step // 20) % 2
        times = {"time/rollout": 9.0 * waits, "time/train": 1.0, "time/publish": 0.0, "time/step": 1.0 + 9.0 * waits}
        said = list(schedule.adapt(step, {**times, "time/engine_idle": 0.0, "buffer/staleness_mean": 3.0}))
        wrong = [each for each in said if not isinstance(each, str) or not each.strip()]
        expect(not wrong, f"adapt gave {wrong}", "a sentence for each change, with the measurement that caused it")
        changed = before != (schedule.pace, schedule.room, dict(schedule.settings()))
        expect(changed == bool(said), f"changed {changed}, and said {said}", "say what was changed, and only that")
        reach = schedule.reach(step, False)
        expect(reach is None or reach > step, f"reach({step}, False) is {reach}", "step + 1 or more, adapted or not")
    resumed = subject.build()
    resumed.begin(4 * schedule.groups_per_step)
    resumed.restore(json.loads(json.dumps(schedule.state(), allow_nan=False)))
    same = (resumed.pace, resumed.room, resumed.settings()) == (schedule.pace, schedule.room, schedule.settings())
    expect(same, "after restore its settings differ", "keep all of it in state()")
    coming = range(STEPS, STEPS + 20)
    expect(
        [resumed.publishes(step) for step in coming] == [schedule.publishes(step) for step in coming],
        "after restore it publishes at other steps",
        "keep in state() what publishes() depends on",
    )
