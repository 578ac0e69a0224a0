"""The runs under one folder: listing them, and finding one by what a person types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from miles_core.errors import RequestError
from miles_core.observe.folder import RunFolder


def list_runs(root: Path) -> list[tuple[RunFolder, dict[str, Any]]]:
    """The runs under `root` with their status, oldest first; none when there is no such folder.

    A run whose run.json cannot be read has the state `damaged` and the reason under `error`.
    """
    if not root.is_dir():
        return []
    found = [_with_status(RunFolder(path.parent)) for path in root.glob("[!.]*/run.json")]
    return sorted(found, key=lambda run: (run[1].get("started", ""), run[0].path.name))


def find_run(root: Path, name: str) -> RunFolder:
    """The run at the path `name`, else the one under `root` of that folder name, else the latest whose folder name or
    run name is `name`, else the only one whose folder name starts with it. Raises RequestError when there is none or
    several."""
    if (Path(name) / "run.json").is_file():
        return RunFolder.open(Path(name))
    runs = list_runs(root)
    named = [run for run, status in runs if name in (run.path.name, status.get("name"))]
    if named:
        return named[-1]
    begun = [run for run, _ in runs if run.path.name.startswith(name)]
    if len(begun) == 1:
        return begun[0]
    if begun:
        names = ", ".join(run.path.name for run in begun)
        raise RequestError(f"{name!r} may be any of {names}", where=str(root), mend="write more of the name")
    raise RequestError(f"there is no run {name!r}", where=str(root), mend="see `miles runs list`, or give its path")


def _with_status(run: RunFolder) -> tuple[RunFolder, dict[str, Any]]:
    try:
        return run, run.read_status()
    except RequestError as error:
        return run, {"state": "damaged", "error": str(error)}
