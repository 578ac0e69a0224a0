"""`miles plugins diff`: how the plugins of two runs differ."""

from __future__ import annotations

from pathlib import Path

from miles_core.cli.output import say, say_json
from miles_core.errors import EXIT_DONE, EXIT_FAILED
from miles_core.host.drift import differences
from miles_core.host.lock import read_lock
from miles_core.observe.runs import find_run


def compare_runs(first: str, second: str, runs_dir: Path, *, as_json: bool) -> int:
    """Print what differs; the exit code is 0 when nothing does, else 1. A side is a run's folder, its name, or a lock.

    Raises RequestError when a run or a lock cannot be found or read.
    """
    files = [_lock_of(name, runs_dir) for name in (first, second)]
    found = differences(*(read_lock(file) for file in files), options=True)
    if as_json:
        facts = {"first": str(files[0]), "second": str(files[1]), "same": not found}
        say_json({**facts, "differences": [each.to_json() for each in found]})
    else:
        for each in found:
            say(each.sentence(f"in {first}", f"in {second}"))
        if not found:
            say("the plugins are the same")
    return EXIT_FAILED if found else EXIT_DONE


def _lock_of(name: str, runs_dir: Path) -> Path:
    path = Path(name)
    if path.is_file():
        return path
    if (path / "plugins.lock").is_file():
        return path / "plugins.lock"
    return find_run(runs_dir, name).lock
