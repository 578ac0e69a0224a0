"""When weights are published, and how much a step takes."""

from miles_core import BuildContext

from miles_plugin_xyz.options import XyzOptions
from miles_plugin_xyz.schedule import XyzSchedule


def made(warm_up: int, every: int) -> XyzSchedule:
    options = XyzOptions(groups_per_step=3, group_size=4, warm_up=warm_up, every=every)
    return XyzSchedule(options, BuildContext(seed=1, name="schedule"))


def test_publications_become_rarer() -> None:
    schedule = made(warm_up=3, every=2)
    assert [step for step in range(1, 10) if schedule.publishes(step)] == [1, 2, 3, 5, 7, 9]


def test_without_a_warm_up() -> None:
    schedule = made(warm_up=0, every=3)
    assert [step for step in range(1, 10) if schedule.publishes(step)] == [3, 6, 9]


def test_nothing_runs_ahead_of_the_trainer() -> None:
    schedule = made(warm_up=1, every=1)
    assert [schedule.reach(step, taken) for step in (0, 7) for taken in (False, True)] == [1, 1, 8, 8]
    assert (schedule.groups_per_step, schedule.group_size) == (3, 4)
