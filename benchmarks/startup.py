"""How long the command line makes a person wait before it does anything: CPU time in multiples of `python -c pass`.

    python benchmarks/startup.py

Each command runs in a process of its own, round by round in turn, so that a busy machine slows all of them alike; the
figure is the ratio of the medians of user + system CPU time. Plugins are made up: 50 `.dist-info` folders with entry
points on PYTHONPATH, beside whatever is installed; the same is measured without them. `pytest --version` and `hatch
--help` stand beside as what people are used to. The interpreter's own start includes what editable installations add
to it, on both sides of a ratio.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROUNDS = 21
PLUGINS = 50
PROVIDED = 4  # components declared by each made-up plugin
AIMS = {"version": 3.0, "plugins-list": 6.0, "help": 9.0}

BIN = Path(sys.executable).parent
COMMANDS = {
    "python": [sys.executable, "-c", "pass"],
    "version": [str(BIN / "miles"), "--version"],
    "plugins-list": [str(BIN / "miles"), "plugins", "list", "--json"],
    "help": [str(BIN / "miles"), "--help"],
    "pytest-version": [str(BIN / "pytest"), "--version"],
    "hatch-help": [str(BIN / "hatch"), "--help"],
}


def make_plugins(folder: Path, count: int) -> None:
    """Metadata of `count` installed plugins, as pip leaves it."""
    for number in range(count):
        info = folder / f"miles_plugin_made_up_{number:02}-1.{number}.0.dist-info"
        info.mkdir()
        name = f"miles-plugin-made-up-{number:02}"
        provides = "".join(f"reward.made-up-{number}-{k} = miles_plugin_made_up_{number:02}\n" for k in range(PROVIDED))
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.4\nName: {name}\nVersion: 1.{number}.0\nSummary: Made up for measuring\n"
            "Requires-Dist: miles-core>=0.1,<0.2\n\nA longer description.\n"
        )
        (info / "entry_points.txt").write_text(
            f"[miles.plugins]\nmade-up-{number:02} = miles_plugin_made_up_{number:02}.plugin\n\n"
            f"[miles.provides]\n{provides}"
        )
        (info / "RECORD").write_text(f"{info.name}/METADATA,,\n")
        (info / "INSTALLER").write_text("pip\n")


def cpu_seconds(command: list[str], environment: dict[str, str]) -> float:
    """User + system CPU time of one run of the command. Raises when it fails."""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def measure(names: list[str], environment: dict[str, str]) -> dict[str, float]:
    """Median CPU seconds of each command, run in turn."""
    for name in names:
        cpu_seconds(COMMANDS[name], environment)  # compile to bytecode, warm the page cache
    taken: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(ROUNDS):
        for name in names:
            taken[name].append(cpu_seconds(COMMANDS[name], environment))
    return {name: statistics.median(seconds) for name, seconds in taken.items()}


def main() -> None:
    names = [name for name, command in COMMANDS.items() if Path(command[0]).exists()]
    found: dict[int, dict[str, float]] = {}
    for count in (0, PLUGINS):
        with tempfile.TemporaryDirectory() as folder:
            make_plugins(Path(folder), count)
            found[count] = measure(names, {**os.environ, "PYTHONPATH": folder})
    print(f"{'median CPU ms':16}{'0 made-up plugins':>20}{f'{PLUGINS} made-up plugins':>22}")
    for name in COMMANDS:
        cells = [f"{found[count][name] * 1000:.1f}" if name in names else "not installed" for count in (0, PLUGINS)]
        print(f"{name:16}{cells[0]:>20}{cells[1]:>22}")
    for name, command in COMMANDS.items():
        if name == "python" or name not in names:
            continue
        shown = " ".join([Path(command[0]).name, *command[1:]])
        ratio = found[PLUGINS][name] / found[PLUGINS]["python"]
        aim = f" (aim: at most {AIMS[name]:g})" if name in AIMS else ""
        print(f"ratio startup-{name} {ratio:.2f} CPU of `{shown}` over `python -c pass`, {PLUGINS} plugins{aim}")


if __name__ == "__main__":
    main()
