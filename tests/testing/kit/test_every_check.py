"""A check that cannot fail is a defect: each one is named by a test that breaks what it promises."""

from __future__ import annotations

import re
from pathlib import Path

from miles_core.testing.kit.run import all_checks


def test_every_check_is_tried_on_something_broken():
    tests = "\n".join(file.read_text(encoding="utf-8") for file in sorted(Path(__file__).parent.glob("*.py")))
    named = set(re.findall(r"[\"'/]([a-z0-9]+(?:-[a-z0-9]+)*)[\"']", tests))
    untried = sorted(check.id for check in all_checks() if check.id.partition("/")[2] not in named)
    assert not untried
