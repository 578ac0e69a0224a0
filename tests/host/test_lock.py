"""plugins.lock: written, read back, compared."""

import hashlib
import json
from dataclasses import replace
from pathlib import Path

import pytest

from miles_core.errors import RequestError
from miles_core.hookspecs import HOOK_API_VERSION
from miles_core.host.lock import LockedPlugin, compare_locks, lock_plugin, lock_source, read_lock, write_lock
from miles_core.host.scan import scan
from miles_core.testing.installing import SitePackages

A = LockedPlugin("a", "miles-plugin-a", "1.0", "aa" * 32)
B = LockedPlugin("b", "miles-plugin-b", "2.0", "bb" * 32)
OWN = LockedPlugin("mine:reward", "", "", "cc" * 32, editable=True)


def test_a_lock_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "plugins.lock"
    write_lock(file, [A, OWN])
    assert read_lock(file) == (A, OWN)
    content = json.loads(file.read_text())
    assert (content["format"], content["hook_api"]) == (1, HOOK_API_VERSION)
    assert [each.name for each in tmp_path.iterdir()] == ["plugins.lock"]


def test_the_hash_is_that_of_the_record(site: SitePackages) -> None:
    info = site.plugin("math", "")
    locked = lock_plugin(scan([str(site.folder)]).plugins[0])
    assert locked.record == hashlib.sha256((info / "RECORD").read_bytes()).hexdigest()


def test_research_code_is_locked_by_its_source(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("x = 1")
    assert lock_source("mine:x", file).record == hashlib.sha256(b"x = 1").hexdigest()


def test_the_same_set_has_no_difference() -> None:
    assert compare_locks([A, B, OWN], [A, B, OWN]) == []


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ([A], "plugin b (miles-plugin-b) 2.0 of the lock is not enabled here"),
        ([A, replace(B, version="2.1")], "plugin b (miles-plugin-b) is 2.1 here, 2.0 in the lock"),
        ([A, replace(B, record="dd" * 32)], "has other files here"),
        ([A, B, replace(OWN, name="other")], "plugin other"),
        ([B, A], "another order"),
    ],
)
def test_every_difference_is_said(found: list[LockedPlugin], says: str) -> None:
    problems = compare_locks([A, B], found)
    assert len(problems) == 1 and says in problems[0].what


def test_changed_research_code_is_a_difference_but_an_editable_record_is_none() -> None:
    assert compare_locks([OWN], [replace(OWN, record="00")])
    editable = replace(A, editable=True)
    assert compare_locks([editable], [replace(editable, record="00")]) == []


@pytest.mark.parametrize(
    "content", ["{", "[]", '{"format": 2}', '{"format": 1}', '{"format": 1, "plugins": [{"x": 1}]}']
)
def test_a_damaged_lock_is_refused_by_name(tmp_path: Path, content: str) -> None:
    file = tmp_path / "plugins.lock"
    file.write_text(content)
    with pytest.raises(RequestError) as error:
        read_lock(file)
    assert str(file) in str(error.value)


def test_a_missing_lock_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot be read"):
        read_lock(tmp_path / "absent.lock")
