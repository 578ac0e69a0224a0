"""Where the line lies between old and too old."""

import pytest
from miles_core import BuildContext, Group, Verdict
from miles_core.testing import make_group, make_sequence, make_task, make_trajectory

from miles_plugin_xyz.options import XyzOptions
from miles_plugin_xyz.staleness import XyzStaleness


def judged(group: Group, version: int) -> Verdict:
    options = XyzOptions(max_age=2)
    staleness = XyzStaleness(options, BuildContext(seed=1, name="staleness"))
    return staleness.judge(group, version)


@pytest.mark.parametrize(("version", "kept"), [(5, True), (7, True), (8, False)])
def test_the_age_decides(version: int, kept: bool) -> None:
    assert judged(make_group(version=5), version).keep is kept


def test_the_reason_names_the_age() -> None:
    assert judged(make_group(version=5), 9) == Verdict(False, "age 4")


def test_a_demonstration_never_grows_old() -> None:
    shown = make_trajectory(sequences=[make_sequence(demonstration=True)])
    assert judged(Group(make_task(), 0, 0, (shown,)), 1000).keep
