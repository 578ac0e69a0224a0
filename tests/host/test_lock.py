"""plugins.lock: written, read back, compared."""

from __future__ import annotations

import hashlib
import json
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from miles_core.errors import RequestError
from miles_core.hookspecs import HOOK_API_VERSION
from miles_core.host.drift import differences, drift
from miles_core.host.lock import (
    Lock,
    LockedPlugin,
    lock_code,
    lock_options,
    lock_plugin,
    lock_source,
    read_lock,
    write_lock,
)
from miles_core.host.scan import scan
from miles_core.testing.installing import SitePackages

A = LockedPlugin("a", "miles-plugin-a", "1.0", "aa" * 32)
B = LockedPlugin("b", "miles-plugin-b", "2.0", "bb" * 32)
OWN = LockedPlugin("mine:reward", "", "", "cc" * 32, editable=True)
EDITED = replace(A, editable=True, code="11" * 32, commit="ab" * 20)


def lock(*plugins: LockedPlugin, hook_api: str = HOOK_API_VERSION, form: int = 2) -> Lock:
    return Lock(plugins, hook_api, form)


def test_a_lock_is_read_as_it_was_written(tmp_path: Path) -> None:
    file = tmp_path / "plugins.lock"
    write_lock(file, [A, OWN, EDITED])
    assert read_lock(file) == lock(A, OWN, EDITED)
    content = json.loads(file.read_text())
    assert (content["format"], content["hook_api"]) == (2, HOOK_API_VERSION)
    assert [each.name for each in tmp_path.iterdir()] == ["plugins.lock"]


def test_a_lock_of_the_first_format_is_read_and_compared(tmp_path: Path) -> None:
    file = tmp_path / "plugins.lock"
    line = {"name": "a", "distribution": "miles-plugin-a", "version": "1.0", "record": "aa" * 32, "editable": False}
    file.write_text(json.dumps({"format": 1, "hook_api": HOOK_API_VERSION, "plugins": [line]}))
    assert read_lock(file) == lock(A, form=1)
    assert differences(read_lock(file), lock(replace(A, options="dd" * 32)), options=True) == []
    assert drift(read_lock(file), lock(replace(A, version="1.1")))


def test_the_hash_is_that_of_the_record(site: SitePackages) -> None:
    folder = site.plugin("math", "")
    [plugin] = scan([str(site.folder)]).plugins
    expected = hashlib.sha256((folder / "RECORD").read_bytes()).hexdigest()
    assert lock_plugin(plugin) == LockedPlugin("math", "miles-plugin-math", "1.0", expected)
    (folder / "RECORD").write_text("something else\n")
    assert lock_plugin(plugin).record != expected


def test_research_code_is_locked_by_its_content(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("A = 1\n")
    first = lock_source("mine:A", file)
    assert first.distribution == "" and first.record
    file.write_text("A = 2\n")
    assert lock_source("mine:A", file).record != first.record
    assert lock_source("mine:A", None).record == ""


def test_the_code_of_an_editable_plugin_is_locked_with_its_commit(tmp_path: Path) -> None:
    source, site = SitePackages(tmp_path / "source"), SitePackages(tmp_path / "site")
    module = source.module("miles_plugin_x.plugin", "A = 1\n")
    info = site.distribution("miles-plugin-x", plugins={"x": "miles_plugin_x.plugin"})
    (info / "direct_url.json").write_text(json.dumps({"dir_info": {"editable": True}, "url": source.folder.as_uri()}))
    plugins = scan([str(site.folder)]).plugins

    def locked() -> LockedPlugin:
        return lock_code([lock_plugin(plugin) for plugin in plugins], plugins)[0]

    def git(*arguments: str) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b"]
        return subprocess.run(
            ["git", *identity, *arguments], cwd=source.folder, check=True, capture_output=True, text=True
        ).stdout.strip()

    plain = locked()
    assert plain.code and (plain.commit, plain.dirty) == ("", False)
    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "first")
    clean = locked()
    assert (clean.code, clean.commit, clean.dirty) == (plain.code, git("rev-parse", "HEAD"), False)
    assert locked() == clean
    module.write_text("A = 2\n")
    (source.folder / "README").write_text("not part of the package")
    edited = locked()
    assert edited.dirty and edited.commit == clean.commit and edited.code != clean.code
    [problem] = drift(lock(clean), lock(edited))
    assert "has the code" in problem.what and clean.commit[:12] in problem.what and "uncommitted" in problem.what
    git("commit", "-qam", "second")
    assert not locked().dirty and locked().code == edited.code
    assert drift(lock(edited), lock(locked())) == []  # the same code, by another name


def wheel(site: SitePackages) -> Path:
    """A plugin as pip installs a wheel; the file of its code."""
    module = site.module("miles_plugin_w.plugin", "A = 1\n")
    info = site.distribution("miles-plugin-w", plugins={"w": "miles_plugin_w.plugin"})
    files = [site.folder / "miles_plugin_w" / "__init__.py", module]
    lines = [f"{file.relative_to(site.folder)},sha256=x,{file.stat().st_size}\n" for file in files]
    (info / "RECORD").write_text("".join([*lines, f"{info.name}/RECORD,,\n", "../../bin/w,sha256=x,1\n"]))
    return module


def of_wheel(site: SitePackages) -> LockedPlugin:
    plugins = scan([str(site.folder)]).plugins
    return lock_code([lock_plugin(plugin) for plugin in plugins], plugins)[0]


@pytest.mark.parametrize("how", ["edited", "deleted", "added"])
def test_a_wheel_whose_files_were_altered_is_another_one(tmp_path: Path, how: str) -> None:
    module = wheel(SitePackages(tmp_path / "site"))
    first = of_wheel(SitePackages(tmp_path / "site"))
    (tmp_path / "site/miles_plugin_w-1.0.dist-info/INSTALLER").write_text("another\n")
    (module.parent / "__pycache__").mkdir()
    (module.parent / "__pycache__" / "plugin.cpython-311.pyc").write_bytes(b"0")
    assert of_wheel(SitePackages(tmp_path / "site")) == first and first.code
    if how == "edited":
        module.write_text("A = 2\n")
    elif how == "deleted":
        module.unlink()
    else:
        module.with_name("plugin.cpython-311-x86_64-linux-gnu.so").write_bytes(b"0")
    altered = of_wheel(SitePackages(tmp_path / "site"))
    assert altered.record == first.record
    [problem] = drift(lock(first), lock(altered))
    assert "plugin w (miles-plugin-w) has the code" in problem.what and "plugins verify w" in problem.mend
    assert drift(lock(replace(first, code="")), lock(altered)) == []  # a lock of before, which could not tell


def test_a_wheel_in_an_archive_is_locked_by_its_files(tmp_path: Path) -> None:
    def archived(source: str) -> LockedPlugin:
        file = tmp_path / f"{len(source)}" / "w-1.0-py3-none-any.whl"
        file.parent.mkdir()
        with zipfile.ZipFile(file, "w") as opened:
            opened.writestr("miles_plugin_w.py", source)
            opened.writestr("w-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: w\nVersion: 1.0\n")
            opened.writestr("w-1.0.dist-info/entry_points.txt", "[miles.plugins]\nw = miles_plugin_w\n")
            opened.writestr("w-1.0.dist-info/RECORD", "miles_plugin_w.py,sha256=x,5\n")
        plugins = scan([str(file)]).plugins
        return lock_code([lock_plugin(plugin) for plugin in plugins], plugins)[0]

    assert drift(lock(archived("A = 1")), lock(archived("A = 22")))


def test_options_are_locked_whatever_their_order() -> None:
    one, two = ("reward.a", {"x": 1, "y": [2]}), ("loss.b", {})
    first = lock_options(A, [one, two])
    assert first.options and first == lock_options(A, [two, ("reward.a", {"y": [2], "x": 1})])
    assert first != lock_options(A, [("reward.a", {"x": 1, "y": [3]}), two])
    assert lock_options(A, []).options == ""


@pytest.mark.parametrize(
    ("found", "says"),
    [
        ([A], "b (miles-plugin-b) 2.0 in the lock is not enabled here"),
        ([A, B, OWN], "mine:reward"),
        ([A, replace(B, version="2.1")], "is 2.1 here, 2.0 in the lock"),
        ([A, replace(B, record="00" * 32)], "has the files 000000000000 here, bbbbbbbbbbbb in the lock"),
        ([A, replace(B, editable=True)], "is installed as an editable source folder here, a wheel in the lock"),
        ([B, A], "order b, a here, a, b in the lock"),
    ],
)
def test_a_difference_is_said(found: list[LockedPlugin], says: str) -> None:
    problems = drift(lock(A, B), lock(*found))
    assert len(problems) == 1 and says in problems[0].what


def test_another_hook_api_is_a_difference() -> None:
    [problem] = drift(lock(A, hook_api="0.9"), lock(A))
    assert "hook API" in problem.what and "0.9" in problem.what


def test_changed_research_code_is_a_difference_but_an_editable_record_and_options_are_none() -> None:
    assert drift(lock(OWN), lock(replace(OWN, record="00")))
    assert drift(lock(EDITED), lock(replace(EDITED, record="00", options="22" * 32))) == []
    [asked] = differences(lock(EDITED), lock(replace(EDITED, options="22" * 32)), options=True)
    assert (asked.field, asked.first, asked.second) == ("options", "none", "222222222222")


def test_without_a_digest_the_commit_is_compared() -> None:
    bare = replace(EDITED, code="")
    assert drift(lock(bare), lock(EDITED)) == drift(lock(EDITED), lock(EDITED))
    assert drift(lock(bare), lock(replace(bare, commit="cd" * 20)))
    assert drift(lock(bare), lock(replace(bare, dirty=True)))


plugins = st.builds(
    LockedPlugin,
    name=st.sampled_from("abc"),
    distribution=st.sampled_from(["", "miles-plugin-a"]),
    version=st.sampled_from(["1.0", "2.0"]),
    record=st.sampled_from(["", "aa" * 32]),
    editable=st.booleans(),
    code=st.sampled_from(["", "11" * 32, "22" * 32]),
    options=st.sampled_from(["", "33" * 32]),
)
locks = st.lists(plugins, unique_by=lambda each: (each.distribution, each.name), max_size=4).map(
    lambda each: lock(*each)
)


@given(locks, locks)
def test_differences_mirror_each_other_and_every_one_has_a_sentence(one: Lock, other: Lock) -> None:
    assert differences(one, one, options=True) == []
    there, back = differences(one, other, options=True), differences(other, one, options=True)
    assert len(there) == len(back)
    assert {(each.plugin, each.field) for each in there} == {(each.plugin, each.field) for each in back}
    assert all(each.sentence("in A", "in B") for each in there)


@pytest.mark.parametrize(
    "content",
    [
        "{", "[]", '{"format": 3}', '{"format": 1}', '{"format": 1, "hook_api": "1.0", "plugins": [{"x": 1}]}',
        '{"format": 2, "hook_api": "1.0", "plugins": [{"name": 1, "distribution": "", "version": "", "record": ""}]}',
    ],
)  # fmt: skip
def test_a_damaged_lock_is_refused_by_name(tmp_path: Path, content: str) -> None:
    file = tmp_path / "plugins.lock"
    file.write_text(content)
    with pytest.raises(RequestError) as error:
        read_lock(file)
    assert str(file) in str(error.value)


def test_a_missing_lock_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(RequestError, match="cannot be read"):
        read_lock(tmp_path / "absent.lock")
