"""A run that must use a locked set refuses another one; a run that goes on lets its editable plugins be mended."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from miles_core.errors import PluginError
from miles_core.host.lock import LockedPlugin, write_lock
from miles_core.loop.plugin_set import continue_with, refuse_drift

WHEEL = LockedPlugin("w", "miles-plugin-w", "1.0", "aa" * 32)
EDITED = LockedPlugin("e", "miles-plugin-e", "1.0", "", editable=True, code="11" * 32, commit="ab" * 20)
OWN = LockedPlugin("mine:reward", "", "", "cc" * 32, editable=True)


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    write_lock(tmp_path / "plugins.lock", [WHEEL, EDITED, OWN])
    return tmp_path / "plugins.lock"


@pytest.mark.filterwarnings("error")
def test_the_same_set_is_accepted_whatever_options_it_is_given(lock: Path) -> None:
    here = (replace(WHEEL, options="22" * 32), EDITED, OWN)
    refuse_drift(lock, here)
    continue_with(lock, here)


def test_edited_code_is_refused_where_the_set_is_locked_and_warned_of_where_a_run_goes_on(lock: Path) -> None:
    here = (WHEEL, replace(EDITED, code="22" * 32, dirty=True), OWN)
    with pytest.raises(PluginError, match="uncommitted changes") as error:
        refuse_drift(lock, here)
    assert error.value.problems[0].where == str(lock)
    with pytest.warns(UserWarning, match=r"e \(miles-plugin-e\) has the code of commit abababababab, with uncommitted"):
        continue_with(lock, here)


@pytest.mark.parametrize(
    "here", [(EDITED, OWN), (replace(WHEEL, version="2.0"), EDITED, OWN), (WHEEL, EDITED, replace(OWN, record="00"))]
)
def test_everything_else_is_refused_by_both(lock: Path, here: tuple[LockedPlugin, ...]) -> None:
    for refuses in (refuse_drift, continue_with):
        with pytest.raises(PluginError, match="another than the locked one"):
            refuses(lock, here)
