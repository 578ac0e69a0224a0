"""docs/plugins.md as a stranger follows it: every command, and every block of code, in order."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from dataclasses import dataclass
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "plugins.md"
PLUGIN = "miles-plugin-brevity"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PLACE = re.compile(r"# (\S+\.py)(?:, (changed|new))?\n")


@dataclass(frozen=True)
class Reader:
    """Someone with a terminal: an empty folder, and an environment in which Miles is installed and `pip install` has
    consequences for nobody else."""

    folder: Path
    environment: Path

    def types(self, commands: str) -> str:
        path = f"{self.environment / 'bin'}:{os.environ['PATH']}"
        hidden = {"PYTHONPATH": "", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INDEX": "1"}
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", commands],
            cwd=self.folder,
            env={**os.environ, "PATH": path, **hidden},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout[-4000:]}"
        return done.stdout


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """The environment is one of its own that sees what is installed in this one."""
    environment, folder = tmp_path / "environment", tmp_path / "folder"
    folder.mkdir()
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    seen = [entry for entry in sys.path if entry.endswith("site-packages")]
    (packages / "seen.pth").write_text("".join(f"import site; site.addsitedir({entry!r})\n" for entry in seen))
    for command, module in (("miles", "miles_core.cli.entry"), ("pip", "pip"), ("pytest", "pytest")):
        script = environment / "bin" / command
        script.write_text(f'#!/bin/sh\nexec "{environment}/bin/python" -m {module} "$@"\n')
        script.chmod(0o755)
    return Reader(folder, environment)


def test_the_page(reader: Reader) -> None:
    said: list[str] = []
    followed = {"bash": 0, "python": 0, "toml": 0}
    for language, content in BLOCK.findall(PAGE.read_text()):
        if language == "bash":
            said.append(reader.types(content))
        elif language == "python":
            _follow(reader.folder / PLUGIN, content)
        else:
            project = tomllib.loads((reader.folder / PLUGIN / "pyproject.toml").read_text())["project"]
            assert tomllib.loads(content)["project"].items() <= project.items()
        followed[language] += 1
    assert followed == {"bash": 4, "python": 6, "toml": 1}
    first, checked, again, run = said
    assert first.startswith(f"made {PLUGIN}: 12 files, which provide reward.brevity")
    assert "grade     gold" in checked and re.search(r"evaluation held-out: before .*, after ", checked)
    assert re.search(r"\d+ passed", again) and "failed" not in again
    assert "1 - words / 4, at least 0" in run


def _follow(plugin: Path, content: str) -> None:
    """A block is a file as it was generated, or one that the reader writes."""
    place = PLACE.match(content)
    assert place, f"which file is this?\n{content[:80]}"
    text, file, what = content[place.end() :], plugin / place[1], place[2]
    if what is None:
        assert file.read_text() == text, f"the page shows another {place[1]} than is generated"
    else:
        assert file.exists() == (what == "changed")
        file.write_text(text)
