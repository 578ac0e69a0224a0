"""Damaged metadata of unrelated distributions: found whole, and named by the errors that it causes elsewhere."""

from __future__ import annotations

import importlib.metadata
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest

from miles_core.errors import PluginError, Problem, RunError
from miles_core.host.damage import READERS, DamagedMetadata, broken_by, examine, explain, explained, mend_of
from miles_core.host.found import Damage
from miles_core.host.load import guarded
from miles_core.host.scan import InstalledPlugin
from miles_core.testing.installing import SitePackages

HEAD = b"Metadata-Version: 2.1\nName: foreign\nVersion: 1.0\n"
CASES: dict[str, tuple[dict[str, bytes], str, str]] = {
    "line": ({"METADATA": HEAD, "entry_points.txt": b"[x]\nno equals\n"}, "bad-line", "entry_points.txt:2"),
    "encoding": ({"METADATA": HEAD, "entry_points.txt": b"[x]\na = \xff\n"}, "bad-encoding", "entry_points.txt:2"),
    "empty-folder": ({}, "no-metadata", "no METADATA"),
    "no-metadata": ({"entry_points.txt": b"[x]\na = b\n"}, "no-metadata", "no METADATA"),
    "metadata-encoding": ({"METADATA": HEAD + b"Summary: \xff\n"}, "bad-metadata", "METADATA:4"),
    "empty-metadata": ({"METADATA": b""}, "no-name", "METADATA is empty"),
    "requirement": ({"METADATA": HEAD + b"Requires-Dist: a (>=\n"}, "bad-requirement", "METADATA:4"),
}


def damaged(folder: Path, case: str) -> Path:
    info = folder / "foreign-1.0.dist-info"
    info.mkdir(parents=True)
    for name, content in CASES[case][0].items():
        (info / name).write_bytes(content)
    return info


@pytest.mark.parametrize("case", CASES)
def test_every_damage_is_found_with_its_place(tmp_path: Path, case: str) -> None:
    info = damaged(tmp_path, case)
    [damage] = examine([str(tmp_path)])
    assert (damage.distribution, damage.fault, damage.location) == ("foreign", CASES[case][1], str(info))
    assert CASES[case][2] in str(damage)
    assert "--force-reinstall foreign" in mend_of(damage) and str(info) in mend_of(damage)


def test_sound_metadata_is_not_complained_of(site: SitePackages) -> None:
    site.plugin("fine", "", requires=["miles-core>=0.1 ; python_version > '3'"])
    site.distribution("egg", egg=True)
    assert examine([str(site.folder)]) == ()


TRIES = {
    "importlib": "import importlib.metadata as m; m.entry_points()",
    "pydantic": "import pydantic\nclass A(pydantic.BaseModel): a: int",
    "stevedore": "from stevedore import ExtensionManager; ExtensionManager('no.such')",
    "pluggy": "import pluggy; pluggy.PluginManager('x').load_setuptools_entrypoints('x')",
    "hypothesis": "import hypothesis",
}


@pytest.mark.parametrize("case", ["line", "encoding", "empty-folder", "metadata-encoding"])
def test_the_table_says_what_libraries_really_do(tmp_path: Path, case: str) -> None:
    """Each library in a process of its own, for the ones that are quick to import."""
    damaged(tmp_path, case)
    [damage] = examine([str(tmp_path)])
    expected = {reader.package for reader in READERS if damage.fault in reader.fails_on}
    if case in ("empty-folder", "metadata-encoding"):
        tried = {"importlib": TRIES["importlib"]}
    else:
        tried = TRIES
    environment = {**os.environ, "PYTHONPATH": str(tmp_path)}
    environment.pop("PYDANTIC_DISABLE_PLUGINS", None)
    for package, code in tried.items():
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, check=False)
        assert (done.returncode != 0) == (package in expected), package


def caught(code: str) -> BaseException:
    try:
        exec(compile(code, "<asked>", "exec"), {})
    except BaseException as error:
        return error
    raise AssertionError("nothing was raised")


@pytest.fixture
def with_damage(site: SitePackages) -> Path:
    return damaged(site.folder, "line")


@pytest.mark.parametrize("package", ["stevedore", "pluggy"])
def test_an_error_names_distribution_library_and_mend(with_damage: Path, package: str) -> None:
    problem = explain(caught(TRIES[package]))
    assert problem is not None
    assert problem.what.startswith(f"{package} reads the metadata")
    assert "the distribution foreign" in problem.what and "entry_points.txt:2" in problem.what
    assert problem.where == str(with_damage / "entry_points.txt")
    assert f"delete {with_damage}" in problem.mend


def test_a_traceback_that_a_worker_sent_is_read_too(with_damage: Path) -> None:
    error = PluginError("engine 'torch' could not be built: TypeError")
    error.origin = (
        'Traceback (most recent call last):\n  File "/x/site-packages/torch/__init__.py", line 3025, in '
        '_import_device_backends\n    f()\n  File "/p/lib/python3.11/importlib/metadata/__init__.py", line 1040, in '
        "entry_points\nTypeError: no\n"
    )
    sent = pickle.loads(pickle.dumps(error))
    wrapped = RunError("the run failed")
    wrapped.__cause__ = sent
    for each in (sent, wrapped):
        told = explained(each)
        assert isinstance(told, DamagedMetadata) and told.exit_code == 3
        assert told.problems[0].what.startswith("torch reads the metadata")
        assert "TORCH_DEVICE_BACKEND_AUTOLOAD=0" in told.problems[0].mend
        assert len(told.problems) == 2 and explained(told) is told


def test_errors_of_other_origin_are_left_alone(with_damage: Path) -> None:
    for code in ("1 / 0", "import importlib.metadata as m; int(None)", "None + 1"):
        error = caught(code)
        assert explain(error) is None and explained(error) is error
    interrupt = KeyboardInterrupt()
    assert explained(interrupt) is interrupt


def test_without_damage_the_library_itself_is_at_fault(site: SitePackages) -> None:
    assert explain(caught("import importlib.metadata as m; m.version('no-such-thing')")) is None


def test_a_missing_distribution_is_not_blamed_on_damage(with_damage: Path) -> None:
    assert explain(caught("import importlib.metadata as m; m.version('no-such-thing')")) is None
    load = "from importlib.metadata import EntryPoint; EntryPoint('a', 'no_such_module', 'g').load()"
    assert explain(caught(load)) is None


def test_a_plugin_that_runs_into_it_says_so(with_damage: Path) -> None:
    plugin = InstalledPlugin("mine", "miles-plugin-mine", "1.0", "mine")
    with pytest.raises(PluginError) as error:
        guarded(plugin, "failed to load", lambda: importlib.metadata.entry_points(group="x"))
    [problem] = error.value.problems
    assert isinstance(problem, Problem) and problem.what.startswith(
        "plugin mine (miles-plugin-mine 1.0) failed to load"
    )
    assert "the distribution foreign" in problem.what


def test_only_installed_libraries_are_named() -> None:
    damage = Damage("x", "/x", "bad-line", "")
    assert {reader.package for reader in broken_by(damage, {"torch"})} == {"torch", "importlib"}
