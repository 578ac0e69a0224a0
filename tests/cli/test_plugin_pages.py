"""`miles plugins list` and `show`, called as a person calls them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from miles_core.testing.installing import SitePackages

MILES = str(Path(sys.executable).parent / "miles")

GOOD = """
import json
from miles_core import Component, hookimpl

@hookimpl
def miles_rewards():
    return [Component("brevity", "good_parts:Brevity", "good_parts:BrevityOptions", "Short is good",
                      frozenset({"async"}), {"limit": 7})]

@hookimpl
def miles_step_finished(step):
    pass
"""
PARTS = """
from typing import Literal
from pydantic import Field, PositiveInt
from miles_core import Options

class BrevityOptions(Options):
    limit: PositiveInt = Field(description="characters at which the score is 0")
    unit: Literal["characters", "words"] = "characters"
    weights: dict[str, float] | None = None

class Brevity: ...
"""


def miles(*arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, "PYTHONPATH": str(cwd / "site"), **environment}
    return subprocess.run(
        [MILES, "plugins", *arguments], cwd=cwd, env=variables, capture_output=True, text=True, timeout=100, check=False
    )


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    site = SitePackages(tmp_path / "site")
    site.module("good_parts", PARTS)
    site.plugin("good", GOOD, "1.2", provides=["reward.brevity"], requires=["miles-core>=0.1", "numpy"])
    site.plugin("noisy", "print('loud', flush=True)\nimport os; os.write(1, b'louder')")
    site.plugin("slow", "import time; time.sleep(60)")
    site.plugin("raising", "raise SystemExit(0)")
    site.plugin("syntax", "def broken(:")
    site.plugin("lonely", "", requires=["absent-thing>=3"])
    site.plugin("leaving", "import os; os._exit(0)")
    return tmp_path


def listed(desk: Path, **environment: str) -> dict[str, dict[str, Any]]:
    done = miles("list", "--json", cwd=desk, **environment)
    assert done.returncode == 0
    return {plugin["name"]: plugin for plugin in json.loads(done.stdout)["plugins"]}


def test_a_list_imports_nothing_of_what_it_lists(desk: Path) -> None:
    found = listed(desk)
    assert {"good", "noisy", "slow", "raising", "syntax", "leaving"} <= found.keys()
    good = found["good"]
    assert (good["status"], good["error"], good["grade"]) == ("installed", None, None)
    assert [(each["name"], each["ok"]) for each in good["requires"]] == [("miles-core", True), ("numpy", True)]
    assert good["location"].endswith("miles_plugin_good-1.2.dist-info") and len(good["record_sha256"]) == 64
    lonely = found["lonely"]
    assert lonely["status"] == "broken" and "absent-thing is not installed" in lonely["error"]
    table = miles("list", cwd=desk).stdout
    assert "absent-thing is not installed" in table and "reward.brevity" in table


def test_a_list_says_what_the_project_and_the_environment_enable(desk: Path) -> None:
    assert listed(desk, MILES_PLUGINS="good,no:noisy")["good"]["status"] == "enabled"
    assert listed(desk, MILES_PLUGINS="good,no:noisy")["noisy"]["status"] == "disabled"
    done = miles("list", "--enabled", cwd=desk, MILES_PLUGINS="good")
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["plugin", "good"]
    assert miles("list", "--enabled", cwd=desk, MILES_PLUGINS="").stdout == "no plugin is enabled\n"
    assert miles("disable", "raising", cwd=desk).returncode == 0
    assert listed(desk)["raising"]["status"] == "disabled"
    (desk / "miles.toml").write_text("[plugins\n")
    done = miles("list", cwd=desk)
    assert done.returncode == 0 and "miles.toml" in done.stderr and "raising" in done.stdout


def test_all_and_requirements(desk: Path) -> None:
    lines = miles("list", "--requirements", cwd=desk).stdout.splitlines()
    assert "miles-plugin-good==1.2" in lines and len(lines) == len(set(lines))
    assert any("miles-core" in line or line.startswith("-e ") for line in lines)
    older = SitePackages(desk / "older")
    older.plugin("good", "", "0.9")
    path = os.pathsep.join([str(desk / "older"), str(desk / "site")])
    done = miles("list", "--all", cwd=desk, PYTHONPATH=path)
    rows = [line for line in done.stdout.splitlines() if line.startswith("good ")]
    assert len(rows) == 2 and "shadowed" in rows[1] and str(desk / "older") in rows[0]
    assert (
        len([line for line in miles("list", cwd=desk, PYTHONPATH=path).stdout.splitlines() if "shadowed" in line]) == 0
    )


def test_a_plugin_is_shown_with_options_hooks_places_and_import_time(desk: Path) -> None:
    done = miles("show", "good", "--json", cwd=desk)
    shown = json.loads(done.stdout)
    assert done.returncode == 0 and shown["healthy"]
    [component] = shown["components"]
    assert (component["kind"], component["name"], component["capabilities"]) == ("reward", "brevity", ["async"])
    assert component["example"] == {"limit": 7}
    options = {option["name"]: option for option in component["options"]}
    assert options["limit"]["required"] and options["limit"]["type"] == "integer > 0"
    assert options["limit"]["description"] == "characters at which the score is 0"
    assert (options["unit"]["type"], options["unit"]["default"]) == ("'characters' or 'words'", "characters")
    assert options["weights"]["type"] == "object of number or null"
    hooks = {hook["hook"]: hook for hook in shown["hooks"]}
    assert hooks["miles_rewards"]["where"] == f"{desk / 'site' / 'miles_plugin_good.py'}:5"
    assert [hook for hook in hooks if hooks[hook]["event"]] == ["miles_step_finished"]
    assert 0 <= shown["import_ms"] < 5000 and shown["heavy_imports"] == []
    page = miles("show", "miles-plugin-good", cwd=desk).stdout
    for part in ("reward.brevity: Short is good", "limit", "required", "miles_step_finished", "ms over the core"):
        assert part in page


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("raising", "SystemExit"),
        ("syntax", "miles_plugin_syntax.py:1"),
        ("leaving", "ended the process with exit status 0 while it was imported"),
        ("lonely", "needs absent-thing>=3, which is not installed"),
        ("noisy", "implements no hook"),
    ],
)
def test_a_plugin_that_does_not_work_is_shown_with_the_reason(desk: Path, name: str, says: str) -> None:
    done = miles("show", name, "--json", cwd=desk)
    assert done.returncode == 3
    shown = json.loads(done.stdout)
    assert not shown["healthy"] and says in json.dumps(shown["problems"])
    assert says in done.stderr and f"miles-plugin-{name}" in done.stderr and "Traceback" not in done.stderr


def test_a_name_of_two_distributions_and_an_unknown_one_are_refused(desk: Path) -> None:
    SitePackages(desk / "site").distribution("other-good", plugins={"good": "miles_plugin_good"})
    done = miles("show", "good", cwd=desk)
    assert done.returncode == 3 and "miles-plugin-good:good or other-good:good" in done.stderr
    assert miles("show", "other-good:good", cwd=desk).returncode == 0
    done = miles("show", "goood", cwd=desk)
    assert done.returncode == 2 and "did you mean 'good'" in done.stderr


def test_listings_work_beside_damaged_metadata(desk: Path) -> None:
    (desk / "site" / "foreign-1.0.dist-info").mkdir()
    (desk / "site" / "foreign-1.0.dist-info" / "METADATA").write_text("Name: foreign\nVersion: 1.0\n")
    (desk / "site" / "foreign-1.0.dist-info" / "entry_points.txt").write_bytes(b"[x]\n\xff\xfe\n")
    for arguments in (("list",), ("show", "good"), ("why", "good"), ("doctor", "good")):
        done = miles(*arguments, cwd=desk)
        assert done.returncode == 0, (arguments, done.stderr)
