"""Two strangers publish a plugin each, and both call their reward `brevity`: real wheels, built outside this tree."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

MILES = str(Path(sys.executable).parent / "miles")

PROJECT = """
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{distribution}"
version = "{version}"
description = "Rewards short answers"
dependencies = ["miles-core>=0.1"]

[project.entry-points."miles.plugins"]
{entry} = "{module}"

[project.entry-points."miles.provides"]
"reward.brevity" = "{module}"

[project.entry-points."miles.hook_api"]
"1.0" = "{module}"

[tool.setuptools]
py-modules = ["{module}"]
"""

MODULE = """
from miles_core import Component, Options, Score, hookimpl


class BrevityOptions(Options):
    limit: int = {limit}


class Brevity:
    def __init__(self, options, context):
        self.limit = options.limit

    async def score(self, group):
        return [Score(1.0) for _ in group.trajectories]


@hookimpl
def miles_rewards():
    return [Component("brevity", "{module}:Brevity", "{module}:BrevityOptions", "Short answers")]
"""

RECIPE = """
miles: 1
plugins: [toy, {plugins}]
model: {{use: toy}}
data: {{use: file, path: tasks.jsonl}}
schedule: {{use: sync, groups_per_step: 1, group_size: 2}}
generator: {{use: single-turn, sampling: {{max_new_tokens: 4}}}}
rewards: [{{use: "{reward}"}}]
advantage: {{use: toy}}
loss: {{use: toy}}
engine: {{use: toy}}
trainer: {{use: toy}}
steps: 1
"""


def pip(*arguments: str, cwd: Path) -> None:
    offline = ["--no-deps", "--disable-pip-version-check", "--quiet"]
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments, *offline], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def publish(folder: Path, wheels: Path, distribution: str, entry: str, version: str, limit: int) -> None:
    """One stranger's afternoon: a folder of their own, and a wheel out of it."""
    module = distribution.replace("-", "_")
    source = folder / distribution
    source.mkdir(parents=True)
    facts = {"distribution": distribution, "module": module, "entry": entry, "version": version, "limit": limit}
    (source / "pyproject.toml").write_text(PROJECT.format(**facts))
    (source / f"{module}.py").write_text(MODULE.format(**facts))
    pip("wheel", "--no-build-isolation", "--wheel-dir", str(wheels), ".", cwd=source)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("strangers")
    publish(root / "ada", root / "wheels", "miles-plugin-brevity", "brevity", "1.3", 10)
    publish(root / "bob", root / "wheels", "short-answers", "short", "0.2.1", 20)
    publish(root / "cy", root / "wheels", "brevity-again", "brevity", "4.0", 30)
    wheels = sorted(str(wheel) for wheel in (root / "wheels").glob("*.whl"))
    assert len(wheels) == 3
    pip("install", "--no-index", "--target", str(root / "site"), *wheels, cwd=root)
    return root / "site"


def plan(folder: Path, site: Path, plugins: str, reward: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "tasks.jsonl").write_text('{"prompt": "1+1", "answer": "2"}\n')
    (folder / "recipe.yaml").write_text(textwrap.dedent(RECIPE.format(plugins=plugins, reward=reward)).lstrip())
    environment = {name: value for name, value in os.environ.items() if not name.startswith("MILES_PLUGINS")}
    return subprocess.run(
        [MILES, "plan", "recipe.yaml", *options],
        cwd=folder,
        env={**environment, "PYTHONPATH": str(site)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_one_component_name_of_two_enabled_plugins_names_both_and_how_to_choose(tmp_path: Path, site: Path) -> None:
    done = plan(tmp_path, site, "short, miles-plugin-brevity", "brevity")
    assert (done.returncode, done.stdout) == (3, "")
    assert "recipe.yaml:7:12: rewards[0].use: reward 'brevity' is provided by" in done.stderr
    for owner in ("short (short-answers 0.2.1)", "brevity (miles-plugin-brevity 1.3)"):
        assert owner in done.stderr
    assert "say which: miles-plugin-brevity:brevity or short-answers:brevity" in done.stderr or (
        "say which: short-answers:brevity or miles-plugin-brevity:brevity" in done.stderr
    )
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("reward", "limit"), [("short-answers:brevity", 20), ("miles-plugin-brevity:brevity", 10)])
def test_the_choice_that_it_offers_works(tmp_path: Path, site: Path, reward: str, limit: int) -> None:
    done = plan(tmp_path, site, "short, miles-plugin-brevity", reward)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("  rewards[0].limit ")]
    assert line.split()[1] == str(limit)


def test_leaving_one_out_is_a_choice_too(tmp_path: Path, site: Path) -> None:
    done = plan(tmp_path, site, "short, miles-plugin-brevity", "brevity", "--plugin", "no:short-answers")
    assert done.returncode == 0, done.stderr
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "short short-answers 0.2.1 off --plugin no:short-answers blocks" in lines


def test_one_plugin_name_of_two_distributions_names_both_with_version_and_place(tmp_path: Path, site: Path) -> None:
    done = plan(tmp_path, site, "brevity", "brevity")
    assert (done.returncode, done.stdout) == (3, "")
    assert "recipe.yaml:2:16: plugin 'brevity' is provided by" in done.stderr
    for owner in ("miles-plugin-brevity 1.3", "brevity-again 4.0"):
        name, version = owner.split()
        assert f"{owner} ({site}/{name.replace('-', '_')}-{version}.dist-info)" in done.stderr
    assert "say which: brevity-again:brevity or miles-plugin-brevity:brevity" in done.stderr
    done = plan(tmp_path, site, "brevity-again:brevity", "brevity")
    assert done.returncode == 0, done.stderr
    assert "brevity-again 4.0" in done.stdout
