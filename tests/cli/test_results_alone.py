"""Standard output holds a command's results alone, whatever plugins print and however they do it."""

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

LOUD = """
import os, subprocess, sys
print("plugin: imported")
os.write(1, b"plugin: below Python\\n")
subprocess.run([sys.executable, "-c", "print('plugin: by a child')"], check=True)
from miles_core import Component, hookimpl

@hookimpl
def miles_rewards():
    print("plugin: registers")
    return [Component("loud", "miles_plugin_loud_parts:Loud", "miles_plugin_loud_options:Loud")]
"""

OPTIONS = """
from miles_core import Options
print("options: imported")

class Loud(Options):
    words: int = 1

    def card(self):
        print("options: card")
        return {"words": str(self.words)}

    def check(self, facts):
        print("options: check")
        return ()
"""

PARTS = """
print("parts: imported")

class Loud:
    def __init__(self, options, context):
        print("parts: built")

    async def score(self, group, tasks=None):
        print("parts: scores")
        return [None for _ in group.trajectories]
"""

RECIPE = """\
miles: 1
plugins: [toy, loud]
model: {use: toy}
data: {use: file, path: tasks.jsonl}
schedule: {use: sync, groups_per_step: 1, group_size: 2}
generator: {use: single-turn, sampling: {max_new_tokens: 4}}
rewards: [{use: loud}]
advantage: {use: toy}
loss: {use: toy}
engine: {use: toy}
trainer: {use: toy}
runtime: {use: in-process}
steps: 1
"""


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    site = SitePackages(tmp_path / "site")
    site.plugin("loud", LOUD, provides=["reward.loud"])
    site.module("miles_plugin_loud_options", OPTIONS)
    site.module("miles_plugin_loud_parts", PARTS)
    (tmp_path / "recipe.yaml").write_text(RECIPE)
    (tmp_path / "tasks.jsonl").write_text(
        '{"id": "t", "messages": [{"role": "user", "content": "a"}], "answer": "b"}\n'
    )
    return tmp_path


def miles(desk: Path, *arguments: str) -> tuple[int, str, str]:
    done = subprocess.run(
        [MILES, *arguments], cwd=desk, env={**os.environ, "PYTHONPATH": str(desk / "site")}, capture_output=True,
        text=True, timeout=100, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize(
    "command",
    [
        ["plan", "recipe.yaml"],
        ["plugins", "show", "loud"],
        ["plugins", "check", "loud"],
        ["recipes", "schema", "--plugin", "loud"],
        ["run", "recipe.yaml", "--quiet"],
    ],
    ids=lambda command: " ".join(command[:2]),
)
def test_json_stands_alone(desk: Path, command: list[str]) -> None:
    _, out, err = miles(desk, *command, *([] if command[1] == "schema" else ["--json"]))
    found: Any = json.loads(out)
    assert isinstance(found, dict)
    if command[0] == "plan":
        said = ["plugin: imported", "plugin: below Python", "plugin: by a child", "options: card", "options: check"]
        assert [each for each in said if each not in err] == []


def test_a_page_stands_alone_too(desk: Path) -> None:
    code, out, err = miles(desk, "plan", "recipe.yaml")
    assert code == 0 and "plugin: imported" in err
    assert not [line for line in out.splitlines() if line.startswith(("plugin: ", "options: "))]


def test_a_reader_that_goes_away_ends_the_command_quietly(desk: Path) -> None:
    line = f"{MILES} plan recipe.yaml | true; exit ${{PIPESTATUS[0]}}"
    environment = {**os.environ, "PYTHONPATH": str(desk / "site")}
    done = subprocess.run(["bash", "-c", line], cwd=desk, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "BrokenPipe" not in done.stderr, done.stderr
