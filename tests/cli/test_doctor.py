"""`miles plugins doctor`: every kind of trouble, each from a plugin that has it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from miles_core.host import diagnosis
from miles_core.host.scan import scan
from miles_core.testing.installing import SitePackages

MILES = str(Path(sys.executable).parent / "miles")
REWARD = """
from miles_core import Component, hookimpl
@hookimpl
def miles_rewards():
    return [Component("{name}", "miles_core.rollout.match_reward:MatchReward")]
"""
GLOBAL_STATE = """
import locale, logging, multiprocessing, os, random, signal, sys, threading, warnings
import numpy
logging.basicConfig(level="DEBUG")
os.environ["MADE_UP"] = "1"
sys.path.insert(0, "/made/up")
warnings.simplefilter("ignore")
random.seed(1)
numpy.random.seed(1)
multiprocessing.set_start_method("spawn")
signal.signal(signal.SIGUSR1, lambda *_: None)
os.chdir("/")
sys.excepthook = print
sys.setrecursionlimit(5000)
print("hello from an import")
threading.Thread(target=threading.Event().wait, args=(1,), name="left-over").start()
"""
STATES = {
    "root logger's handlers", "root logger's level", "environment variables", "sys.path", "warnings filters",
    "random's generator", "numpy's generator", "multiprocessing's start method", "signal handlers",
    "working directory", "sys.excepthook", "recursion limit", "threads left running",
}  # fmt: skip


def doctor(desk: Path, *names: str, **environment: str) -> tuple[int, dict[str, Any], str]:
    variables = {**os.environ, "PYTHONPATH": str(desk / "site"), **environment}
    done = subprocess.run(
        [MILES, "plugins", "doctor", *names, "--json"], cwd=desk, env=variables, capture_output=True, text=True,
        timeout=100, check=False,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def texts(report: dict[str, Any], section: str) -> list[str]:
    return [trouble["what"] for trouble in report["troubles"] if trouble["section"] == section]


@pytest.fixture
def site(tmp_path: Path) -> SitePackages:
    return SitePackages(tmp_path / "site")


def test_a_healthy_plugin_has_no_trouble(site: SitePackages, tmp_path: Path) -> None:
    site.plugin("fine", REWARD.format(name="fine"), provides=["reward.fine"])
    code, report, _ = doctor(tmp_path, "fine")
    assert code == 0 and report["healthy"] and report["troubles"] == []


def test_every_global_state_that_an_import_changes_is_named(site: SitePackages, tmp_path: Path) -> None:
    site.plugin("global", GLOBAL_STATE + REWARD.format(name="g"), provides=["reward.g"])
    code, report, _ = doctor(tmp_path, "global")
    found = texts(report, "global state")
    missing = [state for state in STATES if not any(f"changes {state} when" in text for text in found)]
    assert code == 3 and not missing
    assert any("hello from an import" in text for text in found)
    assert any("MADE_UP added" in text for text in found) and any("left-over added" in text for text in found)


def test_plugins_that_end_their_process_are_survived_and_named(site: SitePackages, tmp_path: Path) -> None:
    site.plugin("quitting", "raise SystemExit(0)")
    site.plugin("leaving", "import os; os._exit(0)")
    site.plugin("fine", REWARD.format(name="fine"), provides=["reward.fine"])
    code, report, _ = doctor(tmp_path, "quitting", "leaving", "fine")
    loading = texts(report, "loading")
    assert code == 3 and report["plugins"] == ["quitting", "leaving", "fine"]
    assert any("quitting" in text and "SystemExit" in text for text in loading)
    assert any("leaving" in text and "exit status 0" in text for text in loading)
    assert report["imported"]["fine"] is not None and len(loading) == 2


def test_only_what_is_enabled_or_named_is_imported(site: SitePackages, tmp_path: Path) -> None:
    site.plugin("trap", f"open({str(tmp_path / 'sprung')!r}, 'w')")
    code, _, errors = doctor(tmp_path)
    assert code == 0 and not (tmp_path / "sprung").exists() and "not imported: " in errors and "trap" in errors
    assert doctor(tmp_path, MILES_PLUGINS="trap")[0] == 3
    assert (tmp_path / "sprung").exists()


def test_declarations_are_compared_with_what_is_registered(site: SitePackages, tmp_path: Path) -> None:
    site.plugin("liar", REWARD.format(name="real"), provides=["reward.promised"])
    code, report, _ = doctor(tmp_path, "liar")
    registered, promised = texts(report, "declarations")
    assert code == 3 and "reward.real" in registered and "reward.promised" in promised


def test_versions_and_extras(site: SitePackages, tmp_path: Path) -> None:
    requires = ["miles-core>=99", "absent-thing; extra == 'more'", "numpy; extra == 'less'"]
    site.plugin("picky", "", requires=requires)
    code, report, _ = doctor(tmp_path, "picky")
    [version], [extra] = texts(report, "versions"), texts(report, "extras")
    assert code == 3 and "miles-core>=99" in version and report["imported"] == {}
    assert "'more'" in extra and "absent-thing" in extra


@pytest.mark.parametrize(
    ("file", "content", "says"),
    [
        ("entry_points.txt", b"[x]\nno equals\n", ["entry_points.txt:2", "pydantic", "importlib.metadata"]),
        ("entry_points.txt", b"[x]\na = \xff\n", ["entry_points.txt:2", "not UTF-8", "pydantic"]),
        ("METADATA", b"Name: foreign\nVersion: 1\nSummary: \xff\n", ["METADATA:3", "pip (list"]),
        (None, b"", ["no METADATA", "names or versions"]),
    ],
)
def test_damage_of_an_unrelated_distribution_is_a_remark_that_says_what_it_breaks(
    site: SitePackages, monkeypatch: pytest.MonkeyPatch, file: str | None, content: bytes, says: list[str]
) -> None:
    monkeypatch.syspath_prepend(str(site.folder))
    if file is None:
        (site.folder / "foreign-1.0.dist-info").mkdir()
    else:
        (site.distribution("foreign") / file).write_bytes(content)
    [trouble] = [each for each in diagnosis.of_metadata(scan()) if str(site.folder) in each.what]
    assert not trouble.serious and trouble.plugin == ""
    assert [part for part in ["foreign", *says] if part not in trouble.what] == []
    assert "--force-reinstall foreign" in trouble.mend and str(site.folder) in trouble.mend


def test_a_damaged_unrelated_distribution_does_not_change_the_exit_code(site: SitePackages, tmp_path: Path) -> None:
    (site.distribution("foreign") / "entry_points.txt").write_bytes(b"[x]\na = \xff\n")
    code, report, _ = doctor(tmp_path)
    assert code == 0 and report["healthy"] and "fsspec" in texts(report, "metadata")[0]


def test_shadowed_distributions_and_source_folders_are_named(site: SitePackages, tmp_path: Path) -> None:
    site.plugin("twice", REWARD.format(name="t"), "2.0", provides=["reward.t"])
    older, bare = SitePackages(tmp_path / "older"), SitePackages(tmp_path / "checkout")
    older.plugin("twice", "", "1.0")
    bare.module("miles_plugin_twice", "")
    path = [str(older.folder), str(site.folder)]
    [hidden] = diagnosis.of_shadowing(scan(path), path)
    assert hidden.serious and "2.0" in hidden.what and str(older.folder) in hidden.what
    path = [str(bare.folder), str(site.folder)]
    [hiding] = diagnosis.of_shadowing(scan(path), path)
    assert "hides the installed package of miles-plugin-twice" in hiding.what and str(bare.folder) in hiding.what
    path.reverse()
    assert list(diagnosis.of_shadowing(scan(path), path)) == []


def test_an_editable_plugin_whose_pyproject_moved_on_is_named(site: SitePackages, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.mkdir()
    info = site.distribution("miles-plugin-ed", plugins={"ed": "ed_plugin"}, provides=["reward.ed"])
    (info / "direct_url.json").write_text(json.dumps({"url": source.as_uri(), "dir_info": {"editable": True}}))
    site.module("ed_plugin", REWARD.format(name="ed"))
    [plugin] = scan([str(site.folder)]).plugins

    def found(name: str, version: str = "1.0") -> list[str]:
        (source / "pyproject.toml").write_text(
            f'[project]\nname = "miles-plugin-ed"\nversion = "{version}"\n'
            f'[project.entry-points."miles.plugins"]\n{name} = "ed_plugin"\n'
            '[project.entry-points."miles.provides"]\n"reward.ed" = "miles_plugin_ed"\n'
        )
        return [trouble.what for trouble in diagnosis.of_editable(plugin)]

    assert found("ed") == []
    entry, version = found("renamed", "1.1")
    assert "'renamed' (ed_plugin in pyproject.toml, absent installed)" in entry and "1.1" in version
    (source / "pyproject.toml").write_text("not = [toml")
    assert "cannot be read" in next(diagnosis.of_editable(plugin)).what
    (source / "pyproject.toml").unlink()
    source.rmdir()
    code, report, _ = doctor(tmp_path, "ed")
    assert code == 3 and "is gone" in texts(report, "editable")[0]


def test_an_unknown_name_is_refused(site: SitePackages, tmp_path: Path) -> None:
    code, report, errors = doctor(tmp_path, "nosuch", "neither")
    assert code == 2 and not report and "nosuch" in errors and "neither" in errors


def test_a_distribution_with_a_misspelt_group_is_named(tmp_path: Path) -> None:
    desk = tmp_path
    info = SitePackages(desk / "site").plugin("keyword", REWARD.format(name="keyword"))
    text = (info / "entry_points.txt").read_text()
    (info / "entry_points.txt").write_text(text.replace("[miles.plugins]", "[miles.plugin]"))
    code, report, _ = doctor(desk)
    [said] = [each for each in report["troubles"] if each["plugin"] == "keyword"]
    assert code == 3 and "is installed, but has no entry point in the group 'miles.plugins'" in said["what"]
    assert "(it has the group 'miles.plugin')" in said["what"] and "rename the group" in said["mend"]
    done = subprocess.run(
        [MILES, "plugins", "show", "keyword"], cwd=desk, env={**os.environ, "PYTHONPATH": str(desk / "site")},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 2 and said["what"] in done.stderr and "pip install" not in done.stderr


def test_an_unknown_kind_is_told_without_an_import(tmp_path: Path) -> None:
    desk = tmp_path
    SitePackages(desk / "site").plugin("keyword", "raise SystemExit(3)", provides=["rewards.keyword", "loose"])
    _, report, _ = doctor(desk)
    said = [each for each in report["troubles"] if each["plugin"] == "keyword"]
    assert "there is no kind 'rewards'" in said[0]["what"] and "`reward.keyword`" in said[0]["mend"]
    assert "'loose', and it has no kind" in said[1]["what"]


def test_a_mistake_in_a_hook_is_told_with_its_line(tmp_path: Path) -> None:
    desk = tmp_path
    source = "from miles_core import hookimpl\n\n@hookimpl\ndef miles_rewrads():\n    return []\n"
    SitePackages(desk / "site").plugin("keyword", source, provides=["reward.keyword"])
    _, report, _ = doctor(desk, "keyword")
    assert any(
        "miles_plugin_keyword.py:3" in text and "no hook miles_rewrads" in text for text in texts(report, "loading")
    )


def test_one_is_one(capsys: pytest.CaptureFixture[str]) -> None:
    from miles_core.cli import plugin_doctor

    plugin_doctor._say([], 1)
    assert capsys.readouterr().out == "1 plugin, 0 troubles, 0 remarks\n"
