"""What a command must not import before it does anything: start-up time is imports."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = {
    "torch", "ray", "transformers", "numpy", "pyarrow", "pydantic", "rich", "pluggy", "stevedore", "yaml", "packaging",
    "importlib.metadata", "asyncio", "tempfile",
}  # fmt: skip
PARSER = {"typer", "click", "inspect", "dataclasses", "json.tool"}
FREE = {"typing", "argparse", "logging", "json"}


def imported_by(arguments: list[str], cwd: Path) -> set[str]:
    """Modules that the command imports beyond what the interpreter's own start does."""
    return _modules(["-m", "miles_core.cli.entry", *arguments], cwd) - _modules(["-c", "pass"], cwd)


def _modules(arguments: list[str], cwd: Path) -> set[str]:
    command = [sys.executable, "-X", "importtime", *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=True)
    lines = (line for line in done.stderr.splitlines() if line.startswith("import time:"))
    return {line.rsplit("|", 1)[1].strip() for line in lines}


@pytest.mark.parametrize(
    ("arguments", "forbidden"),
    [
        (["--version"], HEAVY | PARSER | (FREE - {"typing"})),
        (["plugins", "list"], HEAVY | PARSER | (FREE - {"typing", "json"})),  # of which records of checks are made
        (["plugins", "list", "--json"], HEAVY | PARSER | (FREE - {"typing", "json"})),
        (["--help"], HEAVY),
        (["run", "--help"], HEAVY - {"pydantic", "importlib.metadata", "tempfile"}),  # typer's own, to read options
    ],
)
def test_fast_commands_import_nothing_heavy(tmp_path: Path, arguments: list[str], forbidden: set[str]) -> None:
    found = imported_by(arguments, tmp_path)
    assert found & forbidden == set()
    assert "miles_core.cli.guard" in found or not ({"--help"} & set(arguments))


@pytest.mark.parametrize("arguments", [["runs", "list", "--json"], ["recipes", "list"], ["recipes", "schema"]])
def test_no_listing_imports_a_backend(tmp_path: Path, arguments: list[str]) -> None:
    assert imported_by(arguments, tmp_path) & {"torch", "ray", "transformers"} == set()
