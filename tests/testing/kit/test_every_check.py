"""A check that cannot fail is a defect: each one is named by a test that breaks what it promises."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import numpy as np

from miles_core.testing.kit.run import all_checks

ONLY_READ = {"CHECKS", "DTYPE_BYTES", "LAYER_METHODS", "PROTOCOLS"}
"""Tables that checks look things up in and give to no component."""


def test_every_check_is_tried_on_something_broken():
    tests = "\n".join(file.read_text(encoding="utf-8") for file in sorted(Path(__file__).parent.glob("*.py")))
    named = set(re.findall(r"[\"'/]([a-z0-9]+(?:-[a-z0-9]+)*)[\"']", tests))
    untried = sorted(check.id for check in all_checks() if check.id.partition("/")[2] not in named)
    assert not untried


def test_checks_share_nothing_that_a_component_could_change():
    """What one component does to what it is given must not decide what a later check finds."""
    modules = {each.run.__module__ for each in all_checks()}
    shared = [
        f"{module}.{name}"
        for module in sorted(modules)
        for name, value in vars(importlib.import_module(module)).items()
        if not name.startswith("__") and name not in ONLY_READ and _can_change(value)
    ]
    assert not shared


def _can_change(value: object) -> bool:
    if isinstance(value, np.ndarray):
        return bool(value.flags.writeable)
    if isinstance(value, tuple):
        return any(_can_change(each) for each in value)
    return isinstance(value, dict | list | set | bytearray)
