"""Requirements against what is installed: the quick way says what `packaging` says."""

from __future__ import annotations

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st
from packaging.requirements import Requirement

from miles_core.host.needs import check_requirement, check_requirements

release = st.lists(st.integers(0, 12), min_size=1, max_size=4).map(lambda numbers: ".".join(map(str, numbers)))
suffix = st.sampled_from(["", "", "rc1", ".post1", ".dev3", "+cpu"])
clause = st.tuples(st.sampled_from([">=", "<=", "==", "!=", "<", ">", "~="]), release)


@given(release, suffix, st.lists(clause, max_size=3))
def test_the_answer_is_that_of_packaging(version: str, ending: str, clauses: list[tuple[str, str]]) -> None:
    sound = [operator + asked for operator, asked in clauses if operator != "~=" or "." in asked]
    line = f"Miles.Core {','.join(sound)}"
    state = check_requirement(line, {"miles-core": version + ending})
    assert state is not None
    assert state.ok == Requirement(line).specifier.contains(version + ending, prereleases=True)
    assert state.ok or version in state.fault


def test_what_is_missing_or_unreadable_is_said_and_extras_are_left_out() -> None:
    lines = ["sympy>=1", "rich; extra == 'dev'", "foo (>=", "pywin32; sys_platform == 'win32'", "numpy[all]>=1"]
    states = check_requirements(lines, {"numpy": "2.0"})
    assert [(state.name, state.ok) for state in states] == [("sympy", False), ("", False), ("numpy", True)]
    assert states[0].fault == "sympy is not installed" and states[0].installed is None
    assert "foo (>=" in states[1].fault


@pytest.mark.parametrize(("line", "imported"), [("miles-core>=0.1,<0.2", False), ("miles-core~=0.1", True)])
def test_plain_requirements_need_no_library(line: str, imported: bool) -> None:
    code = (
        "import sys; from miles_core.host.needs import check_requirement\n"
        f"assert check_requirement({line!r}, {{'miles-core': '0.1'}}).ok; print('packaging' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{imported}\n"
