"""The scan beside the standard library: on damaged and unusual distributions, on a thousand, on a real editable one."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from miles_core.host.facts import BROKEN, INCOMPATIBLE, INSTALLED, SHADOWED, Choice, Facts, facts_of, is_of_other_code
from miles_core.host.load import load
from miles_core.host.metadata import normalise
from miles_core.host.scan import scan
from miles_core.host.source import code_digest, head_commit, package_folder, source_folder, working_tree
from miles_core.testing.installing import SitePackages


def rows(site: SitePackages, **choices: str) -> dict[str, Facts]:
    index = scan([str(site.folder)])
    found = facts_of(index, {f"miles-plugin-{name}:{name}": Choice(status) for name, status in choices.items()})
    return {row.plugin.name: row for row in found}


def test_the_scan_agrees_with_the_standard_library_on_unusual_distributions(tmp_path: Path) -> None:
    site = SitePackages(tmp_path / "site")
    site.plugin("one", "", "1.0rc1", provides=["reward.one"])
    site.distribution("Miles.Plugin_Two", "2.0", plugins={"two": "miles_two.plugin:plugin [extra]", "2b": "x"})
    site.distribution("miles-plugin-egg", "3.0", plugins={"egg": "egg"}, egg=True)
    site.distribution("nothing", "4.0")
    (site.folder / "not-a-distribution").mkdir()
    (site.folder / "odd-1.0.dist-info" / "sub").mkdir(parents=True)
    (site.folder / "odd-1.0.dist-info" / "METADATA").write_text("Name: odd\nVersion: 1.0\n")
    (site.folder / "odd-1.0.dist-info" / "entry_points.txt").write_text("[miles.plugins]\n# c\nodd=o.p\n")
    ours = {(p.distribution, p.version, p.name, p.module) for p in scan([str(site.folder)]).plugins}
    theirs = {
        (normalise(d.metadata["Name"]), d.version, e.name, "".join(e.value.split()).partition("[")[0])
        for d in importlib.metadata.distributions(path=[str(site.folder)])
        for e in d.entry_points
        if e.group == "miles.plugins"
    }
    assert ours == theirs and len(ours) == 5


def test_a_thousand_distributions_hide_nothing_and_have_their_versions(tmp_path: Path) -> None:
    site = SitePackages(tmp_path / "site")
    for number in range(1000):
        site.distribution(f"filler-{number}", f"1.{number}")
    site.plugin("needle", "", requires=["filler-7>=1.7", "filler-8>=2"])
    index = scan([str(site.folder)])
    assert [plugin.name for plugin in index.plugins] == ["needle"]
    assert len(index.versions) == 1001 and index.versions["filler-999"] == "1.999"
    states = rows(site)["needle"].requirements
    assert [(state.installed, state.ok) for state in states] == [("1.7", True), ("1.8", False)]


def test_a_wheel_on_the_path_is_listed_and_loaded(site: SitePackages, tmp_path: Path) -> None:
    site.plugin("zipped", "VALUE = 3", "0.2")
    wheel = tmp_path / "miles_plugin_zipped-0.2-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in site.folder.rglob("*"):
            archive.write(file, file.relative_to(site.folder))
    sys.path.insert(0, str(wheel))
    sys.path.remove(str(site.folder))
    importlib.invalidate_caches()
    try:
        index = scan([str(wheel)])
        [loaded], problems = load(index.plugins)
        assert not problems and loaded.object.VALUE == 3 and str(wheel) in loaded.object.__file__
        assert index.versions == {"miles-plugin-zipped": "0.2"}
    finally:
        sys.path.remove(str(wheel))
        sys.modules.pop("miles_plugin_zipped", None)


@pytest.mark.parametrize(
    ("file", "content", "fault", "line"),
    [
        ("entry_points.txt", b"[x]\nno equals\n", "bad-line", 2),
        ("entry_points.txt", b"[x]\n\na = \xff\n", "bad-encoding", 3),
    ],
)
def test_damage_is_kept_with_file_and_line(
    site: SitePackages, file: str, content: bytes, fault: str, line: int
) -> None:
    info = site.distribution("foreign", "2.5")
    (info / file).write_bytes(content)
    [damage] = scan([str(site.folder)]).damaged
    assert (damage.distribution, damage.fault, damage.file, damage.line) == ("foreign", fault, file, line)
    assert damage.location == str(info) and damage.plugin == ""
    assert f"{file}:{line}" in str(damage)


def test_broken_plugins_are_rows(site: SitePackages) -> None:
    site.plugin("fine", "", requires=["miles-plugin-old"])
    site.plugin("old", "", "0.1")
    site.plugin("lonely", "", requires=["absent>=1"])
    site.plugin("picky", "", requires=["miles-plugin-old>=2"])
    future = site.plugin("future", "")
    (future / "entry_points.txt").write_text(
        "[miles.plugins]\nfuture = miles_plugin_future\n[miles.hook_api]\n9.1 = miles_plugin_future\n"
    )
    garbled = site.plugin("garbled", "")
    (garbled / "entry_points.txt").write_bytes(b"[miles.plugins]\ngarbled = g\xff\n")
    (site.plugin("bare", "") / "METADATA").unlink()
    (site.folder / "miles_plugin_empty-3.0.dist-info").mkdir()
    found = rows(site, fine="enabled", old="disabled", lonely="enabled")
    assert {name: row.status for name, row in found.items()} == {
        "fine": "enabled", "old": "disabled", "lonely": BROKEN, "picky": INCOMPATIBLE, "future": INCOMPATIBLE,
        "garbled": BROKEN, "bare": BROKEN, "empty": BROKEN,
    }  # fmt: skip
    assert found["fine"].error == ""
    assert "absent is not installed" in found["lonely"].error
    assert "needs miles-plugin-old>=2, 0.1 is here" in found["picky"].error
    assert "hook API 9.1" in found["future"].error
    assert "entry_points.txt:2 is not UTF-8" in found["garbled"].error
    assert "METADATA" in found["bare"].error and found["empty"].plugin.version == "3.0"


def test_shadowed_plugins_are_rows_and_the_winner_says_whom_it_hides(tmp_path: Path) -> None:
    first, second = SitePackages(tmp_path / "a"), SitePackages(tmp_path / "b")
    first.distribution("miles-plugin-x", "0.1", plugins={"x": "x"}, egg=True)
    hidden = second.distribution("miles-plugin-x", "2.0", plugins={"x": "x"})
    winner, loser = facts_of(scan([str(first.folder), str(second.folder)]), {})
    assert (winner.status, winner.shadows) == (INSTALLED, (str(hidden),))
    assert (loser.status, loser.plugin.shadowed_by) == (SHADOWED, winner.plugin.location)


RECORD = {
    "format": 1, "plugin": "graded", "distribution": "miles-plugin-graded", "version": "1.0", "grade": "silver",
    "evidence": {"reward.a": "verified", "reward.b": "not-verified"}, "checks": [], "hook_api": "1.0", "code": "00",
}  # fmt: skip


@pytest.mark.parametrize("editable", [False, True])
def test_the_grade_is_that_of_the_package_and_an_old_one_is_never_shown_as_current(
    tmp_path: Path, editable: bool
) -> None:
    site, source = SitePackages(tmp_path / "site"), SitePackages(tmp_path / "source" / "src")
    home = source if editable else site
    home.module("miles_plugin_graded.plugin", "raise SystemExit")
    info = site.distribution("miles-plugin-graded", plugins={"graded": "miles_plugin_graded.plugin"})
    if editable:
        url = (tmp_path / "source").as_uri()
        (info / "direct_url.json").write_text(json.dumps({"url": url, "dir_info": {"editable": True}}))
    record = home.folder / "miles_plugin_graded" / "conformance.json"

    def row(**changed: object) -> Facts:
        record.write_text(json.dumps({**RECORD, **changed}))
        return rows(site)["graded"]

    checked = row().checked
    assert checked is not None
    of_this = ("silver", "1 verified, 1 not-verified")  # a wheel's files are not hashed by a listing
    assert (checked.label, checked.summary) == (("silver, of other code", "") if editable else of_this)
    assert checked.current is not editable
    assert package_folder(rows(site)["graded"].plugin) == str(record.parent)
    assert is_of_other_code(rows(site)["graded"])
    same = row(code=code_digest(record.parent))
    assert (
        not is_of_other_code(same)
        and same.checked is not None
        and (same.checked.label, same.checked.summary) == of_this
    )
    (record.parent / "plugin.py").write_text("raise SystemExit(1)")
    assert is_of_other_code(rows(site)["graded"])
    stale = row(version="0.0.9").checked
    assert stale is not None
    assert (stale.label, stale.summary, stale.current) == ("silver, of 0.0.9", "", False)
    for damaged in ({"format": 2}, {"evidence": 3}):
        assert row(**damaged).checked is None and "conformance.json" in row(**damaged).error
    record.write_text("{")
    assert "conformance.json" in rows(site)["graded"].error
    record.unlink()
    assert (rows(site)["graded"].checked, rows(site)["graded"].error) == (None, "")


def test_a_real_editable_installation_is_found_with_its_source_and_commit(tmp_path: Path) -> None:
    source = tmp_path / "with space" / "miles-plugin-ed"
    (source / "miles_plugin_ed").mkdir(parents=True)
    (source / "miles_plugin_ed" / "__init__.py").write_text("")
    (source / "pyproject.toml").write_text(
        '[build-system]\nrequires = ["setuptools"]\nbuild-backend = "setuptools.build_meta"\n'
        '[project]\nname = "miles-plugin-ed"\nversion = "0.3"\n'
        '[project.entry-points."miles.plugins"]\ned = "miles_plugin_ed"\n'
    )

    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, cwd=source, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    git("add", ".")
    git("commit", "-qm", "one")
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "-q", "--no-build-isolation", "--no-deps", "--no-index",
         "--disable-pip-version-check", "--prefix", str(tmp_path / "env"), "-e", str(source)],
        check=True, capture_output=True,
    )  # fmt: skip
    [folder] = (tmp_path / "env").glob("lib/*/site-packages")
    [plugin] = scan([str(folder)]).plugins
    assert (plugin.name, plugin.version, plugin.editable) == ("ed", "0.3", True)
    assert source_folder(plugin) == str(source) and package_folder(plugin) == str(source / "miles_plugin_ed")
    commit = git("rev-parse", "HEAD")
    assert head_commit(source_folder(plugin)) == commit
    git("checkout", "-q", "--detach")
    assert head_commit(str(source)) == commit
    git("checkout", "-q", "-b", "deep/branch")
    git("pack-refs", "--all")
    assert head_commit(str(source)) == commit
    git("worktree", "add", "-q", str(tmp_path / "tree"))
    assert head_commit(str(tmp_path / "tree" / "miles_plugin_ed")) == commit
    (source / "miles_plugin_ed" / "new.py").write_text("")
    tree = working_tree(plugin)
    assert tree is not None and tree.commit == commit and [Path(name).name for name in tree.changed] == ["new.py"]
