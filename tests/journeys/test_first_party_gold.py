"""Every first-party plugin is at gold by the same kit as a stranger's, and its record is what the kit finds today."""

from __future__ import annotations

from pathlib import Path

import pytest

from miles_core.host.scan import scan
from miles_core.testing.kit.check import CheckResult, Grade
from miles_core.testing.kit.record import make_record, record_file
from miles_core.testing.kit.run import check_all, examine

ROOT = Path(__file__).parents[2]
FIRST_PARTY = sorted(
    plugin.name for plugin in scan().plugins if plugin.editable and Path(str(record_file(plugin))).is_relative_to(ROOT)
)


def test_all_of_them_are_looked_at():
    folders = [*ROOT.glob("plugins/*/pyproject.toml"), *ROOT.glob("connectors/*/pyproject.toml")]
    names = {folder.parent.name.removeprefix("miles-plugin-") for folder in folders}
    assert set(FIRST_PARTY) >= names | {"core", "toy"}


@pytest.mark.parametrize("name", FIRST_PARTY)
def test_gold_with_its_record(name):
    [examination] = examine(name)
    report = check_all(examination)
    wanting = [
        f"{f.check.id} of {f.component or name}: {f.detail}"
        for f in report.findings
        if f.result in (CheckResult.FAILED, CheckResult.SKIPPED)
    ]
    assert not wanting
    assert report.grade is Grade.GOLD
    file = record_file(examination.plugin)
    made = make_record(report, tuple(each.component for each in examination.components))
    mend = f"make it again: miles plugins check {name} --record"
    assert file is not None and file.is_file(), mend
    assert file.read_text(encoding="utf-8") == made.text(), mend
