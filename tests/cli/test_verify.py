"""`miles plugins verify` and `diff`."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from miles_core.host.lock import LockedPlugin, write_lock
from miles_core.testing.installing import SitePackages

MILES = str(Path(sys.executable).parent / "miles")


def miles(desk: Path, *arguments: str, path: Path | None = None) -> tuple[int, Any]:
    variables = {**os.environ, "PYTHONPATH": str(path or desk / "site")}
    done = subprocess.run(
        [MILES, "plugins", *arguments, "--json"], cwd=desk, env=variables, capture_output=True, text=True, timeout=100,
        check=False,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout) if done.stdout else done.stderr


def line(file: Path, root: Path) -> str:
    content = file.read_bytes()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    return f"{file.relative_to(root).as_posix()},sha256={digest},{len(content)}\n"


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """A plugin as pip installs a wheel: every file in RECORD, bytecode without a checksum."""
    site = SitePackages(tmp_path / "site")
    site.module("miles_plugin_w.plugin", "A = 1\n")
    site.module("miles_plugin_w.parts", "B = 2\n")
    info = site.distribution("miles-plugin-w", plugins={"w": "miles_plugin_w.plugin"})
    files = [file for folder in (site.folder / "miles_plugin_w", info) for file in sorted(folder.rglob("*"))]
    record = "".join(line(file, site.folder) for file in files if file.name != "RECORD")
    (info / "RECORD").write_text(
        record + f"{info.name}/RECORD,,\nmiles_plugin_w/__pycache__/plugin.cpython-311.pyc,,\n"
    )
    return tmp_path


def verified(desk: Path, **options: Any) -> tuple[int, dict[str, Any]]:
    code, report = miles(desk, "verify", "w", **options)
    [plugin] = report["plugins"]
    return code, plugin


def test_untouched_files_are_as_recorded(desk: Path) -> None:
    code, plugin = verified(desk)
    assert code == 0 and not plugin["differs"] and plugin["compared"] == 5


def test_missing_altered_and_extra_files_are_named(desk: Path) -> None:
    package = desk / "site" / "miles_plugin_w"
    (package / "plugin.py").write_text("A = 'evil'\n")
    (package / "parts.py").unlink()
    (package / "added.py").write_text("")
    (package / "__pycache__").mkdir(exist_ok=True)
    (package / "__pycache__" / "x.cpython-311.pyc").write_bytes(b"")
    code, plugin = verified(desk)
    assert code == 1 and plugin["differs"]
    assert plugin["altered"] == ["miles_plugin_w/plugin.py"]
    assert plugin["missing"] == ["miles_plugin_w/parts.py"]
    assert plugin["extra"] == ["miles_plugin_w/added.py"]


def test_a_wheel_on_the_path_is_compared(desk: Path) -> None:
    wheel = desk / "miles_plugin_w-1.0-py3-none-any.whl"
    record = desk / "site" / "miles_plugin_w-1.0.dist-info" / "RECORD"
    record.write_text("".join(part for part in record.read_text().splitlines(True) if ".pyc" not in part))
    (desk / "site" / "miles_plugin_w" / "parts.py").write_text("B = 3\n")
    with zipfile.ZipFile(wheel, "w") as archive:
        for file in (desk / "site").rglob("*"):
            if file.is_file():
                archive.write(file, file.relative_to(desk / "site"))
        archive.writestr("miles_plugin_w/added.py", "")
    code, plugin = verified(desk, path=wheel)
    assert (code, plugin["altered"], plugin["extra"]) == (1, ["miles_plugin_w/parts.py"], ["miles_plugin_w/added.py"])
    assert plugin["missing"] == [] and plugin["compared"] == 5


def test_an_editable_plugin_has_nothing_to_compare_but_a_commit(desk: Path) -> None:
    source = desk / "source"
    SitePackages(source).module("miles_plugin_w.plugin", "")
    info = desk / "site" / "miles_plugin_w-1.0.dist-info"
    (info / "direct_url.json").write_text(json.dumps({"url": source.as_uri(), "dir_info": {"editable": True}}))
    assert verified(desk)[1]["commit"] is None
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], cwd=source, check=True)
    (source / "miles_plugin_w" / "plugin.py").write_text("A = 2\n")
    code, plugin = verified(desk)
    assert code == 0 and "editable" in plugin["remark"] and len(plugin["commit"]) == 40
    assert plugin["changed"] == ["miles_plugin_w/plugin.py"]


def test_runs_and_locks_are_compared(desk: Path) -> None:
    first = LockedPlugin("w", "miles-plugin-w", "1.0", "aa" * 32, options="11" * 32)
    other = LockedPlugin("v", "miles-plugin-v", "3.0", "cc" * 32)
    for name, plugins in {"a": [first, other], "b": [LockedPlugin("w", "miles-plugin-w", "1.1", "bb" * 32)]}.items():
        folder = desk / "runs" / f"{name}-1"
        folder.mkdir(parents=True)
        (folder / "run.json").write_text(
            json.dumps({"format": "miles.run", "version": 1, "name": name, "state": "done"})
        )
        write_lock(folder / "plugins.lock", plugins)
    code, report = miles(desk, "diff", "a", "runs/b-1")
    assert code == 1 and not report["same"]
    assert [(each["how"], each["field"]) for each in report["differences"]] == [
        ("changed", "version"), ("changed", "options"), ("removed", "plugin"),
    ]  # fmt: skip
    code, report = miles(desk, "diff", "runs/a-1/plugins.lock", "a-1")
    assert code == 0 and report["same"] and report["differences"] == []
    code, errors = miles(desk, "diff", "a", "nosuch")
    assert code == 2 and "nosuch" in errors
