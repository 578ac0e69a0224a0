"""The installed `miles`, called as a person calls it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import miles_core
from miles_core.observe.folder import RunFolder

MILES = str(Path(sys.executable).parent / "miles")

PLUGIN = """\
from miles_core import Component, hookimpl
@hookimpl
def miles_rewards():
    return [Component("made-up", "miles_core.rollout.match_reward:MatchReward", summary="Never built")]
"""
BROKEN = "raise SystemExit('a plugin may do this')\n"


def miles(*arguments: str, cwd: Path, path: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {**os.environ, **environment} | ({"PYTHONPATH": str(path)} if path else {})
    return subprocess.run(
        [MILES, *arguments], cwd=cwd, env=variables, capture_output=True, text=True, timeout=120, check=False
    )


def install(folder: Path, name: str, source: str) -> None:
    """A made-up plugin, as pip leaves it."""
    module = f"miles_plugin_{name}"
    (folder / module).mkdir(parents=True)
    (folder / module / "__init__.py").touch()
    (folder / module / "plugin.py").write_text(source)
    info = folder / f"{module}-1.2.3.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: miles-plugin-{name}\nVersion: 1.2.3\nSummary: One\n")
    (info / "entry_points.txt").write_text(
        f"[miles.plugins]\n{name} = {module}.plugin\n[miles.provides]\nreward.made-up = {module}\n"
    )


@pytest.fixture
def site(tmp_path: Path) -> Path:
    install(tmp_path / "site", "fine", PLUGIN)
    install(tmp_path / "site", "broken", BROKEN)
    return tmp_path / "site"


def test_version(tmp_path: Path) -> None:
    done = miles("--version", cwd=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, f"miles {miles_core.__version__}\n", "")


@pytest.mark.parametrize("arguments", [[], ["--help"], ["-h"]])
def test_help_names_every_command(tmp_path: Path, arguments: list[str]) -> None:
    done = miles(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    for command in ("run", "resume", "plan", "recipes", "plugins", "runs"):
        assert f"\n  {command} " in done.stdout


COMMANDS = [
    "run", "resume", "plan", "recipes list", "recipes show", "recipes schema", "plugins list", "plugins show",
    "runs list", "runs show", "runs export",
]  # fmt: skip


@pytest.mark.parametrize("command", COMMANDS)
def test_the_help_of_a_command_has_an_example_of_it(tmp_path: Path, command: str) -> None:
    done = miles(*command.split(), "--help", cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    assert f"Example: miles {command}" in done.stdout


def test_installed_plugins_are_listed_and_not_imported(tmp_path: Path, site: Path) -> None:
    done = miles("plugins", "list", cwd=tmp_path, path=site)
    assert done.returncode == 0
    lines = {line.split()[0]: line for line in done.stdout.splitlines()}
    assert "miles-plugin-fine" in lines["fine"]
    assert "1.2.3" in lines["fine"]
    assert "reward.made-up" in lines["fine"]
    assert "broken" in lines
    listed = json.loads(miles("plugins", "list", "--json", cwd=tmp_path, path=site).stdout)
    assert {"fine", "broken", "core"} <= {plugin["name"] for plugin in listed["plugins"]}


def test_a_plugin_is_shown_with_what_it_registers(tmp_path: Path, site: Path) -> None:
    done = miles("plugins", "show", "fine", "--json", cwd=tmp_path, path=site)
    shown = json.loads(done.stdout)
    assert done.returncode == 0
    assert shown["healthy"] is True
    assert [(c["kind"], c["name"], c["summary"]) for c in shown["components"]] == [("reward", "made-up", "Never built")]
    assert "reward.made-up" in miles("plugins", "show", "miles-plugin-fine", cwd=tmp_path, path=site).stdout


def test_a_broken_plugin_is_shown_with_the_reason_and_exit_code_3(tmp_path: Path, site: Path) -> None:
    done = miles("plugins", "show", "broken", "--json", cwd=tmp_path, path=site)
    assert done.returncode == 3
    assert json.loads(done.stdout)["healthy"] is False
    assert "a plugin may do this" in done.stderr
    assert "miles-plugin-broken" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_plugin_that_is_not_installed_is_exit_code_2_with_the_nearest_name(tmp_path: Path, site: Path) -> None:
    done = miles("plugins", "show", "fin", cwd=tmp_path, path=site)
    assert (done.returncode, done.stdout) == (2, "")
    assert "did you mean 'fine'" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["runz"], "run"),
        (["plugins"], "Missing command"),
        (["run"], "RECIPE"),
        (["runs", "list", "--jsn"], "--json"),
        (["run", "missing.yaml"], "missing.yaml"),
        (["plan", "no-such-recipe"], "no recipe"),
        (["runs", "show", "nothing"], "no run 'nothing'"),
        (["resume", "nothing"], "no run 'nothing'"),
        (["runs", "export", "nothing", "--to", "there"], "no run 'nothing'"),
    ],
)
def test_a_wrong_request_is_exit_code_2_and_says_why(tmp_path: Path, arguments: list[str], says: str) -> None:
    done = miles(*arguments, cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.startswith("error: ")
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_all_faults_of_a_recipe_are_listed_at_once_with_their_lines(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_text("miles: 1\nplugins: [nowhere]\nstep: 3\nseed: x\n")
    done = miles("plan", "bad.yaml", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("error: ") >= 3
    for part in ("bad.yaml:2", "bad.yaml:3", "bad.yaml:4", "steps", "nowhere"):
        assert part in done.stderr


@pytest.mark.parametrize("flag", [["--traceback"], []])
def test_tracebacks_are_shown_on_request_only(tmp_path: Path, flag: list[str]) -> None:
    environment = {} if flag else {"MILES_TRACEBACK": "1"}
    done = miles("runs", *flag, "show", "nothing", cwd=tmp_path, **environment)
    assert done.returncode == 2
    assert "Traceback" in done.stderr


def test_runs_are_listed_and_shown(tmp_path: Path) -> None:
    assert json.loads(miles("runs", "list", "--json", cwd=tmp_path).stdout) == []
    run = RunFolder.create(tmp_path / "runs", "quickstart")
    versions = {"first_version": 1, "last_version": 13}
    facts = {
        **versions,
        "before": 0.1,
        "after": 0.5,
        "difference": 0.4,
        "low": 0.3,
        "high": 0.5,
        "n": 128,
        "skipped": 0,
    }
    run.write_status(state="done", steps=12, steps_done=12, evaluations={"held-out": facts})
    [listed] = json.loads(miles("runs", "list", "--json", cwd=tmp_path).stdout)
    assert (listed["run"], listed["state"], listed["steps_done"]) == (run.path.name, "done", 12)
    assert "held-out 0.100 -> 0.500" in miles("runs", "list", cwd=tmp_path).stdout
    shown = miles("runs", "show", "quick", cwd=tmp_path).stdout
    assert "difference +0.400 [+0.300, +0.500] (paired, 95 %, 128 tasks)" in shown
    assert json.loads(miles("runs", "show", "quickstart", "--json", cwd=tmp_path).stdout)["steps"] == 12


def test_recipes_are_listed_shown_and_described(tmp_path: Path) -> None:
    (tmp_path / "recipes").mkdir()
    (tmp_path / "recipes" / "mine.yaml").write_text("# What it is for.\nmiles: 1\nsteps: 1\n")
    listed = json.loads(miles("recipes", "list", "--json", cwd=tmp_path).stdout)
    assert {"name": "mine", "summary": "What it is for."}.items() <= next(
        e for e in listed if e["name"] == "mine"
    ).items()
    assert "What it is for." in miles("recipes", "list", cwd=tmp_path).stdout
    assert miles("recipes", "show", "mine", cwd=tmp_path).stdout == "# What it is for.\nmiles: 1\nsteps: 1\n"
    schema = json.loads(miles("recipes", "schema", cwd=tmp_path).stdout)
    assert schema["type"] == "object"
    assert "steps" in schema["properties"]


def test_a_reader_that_goes_away_is_no_traceback(tmp_path: Path) -> None:
    for command in ("plugins list", "recipes schema", "--help"):
        with subprocess.Popen(
            [MILES, *command.split()], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            process.stdout.close()
            errors = process.stderr.read()
        assert process.returncode == 1
        assert errors == ""
