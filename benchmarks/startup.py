"""How long the command line makes a person wait before it does anything: CPU time in multiples of `python -c pass`.

    python benchmarks/startup.py [--rounds N] [--json]

Each command runs in a process of its own, round by round in turn, so that a busy machine slows all of them alike; the
figure is the ratio of the medians of user + system CPU time. Everything is made up: 200 distributions on PYTHONPATH,
50 of them plugins, beside whatever is installed. `pytest --version` and `hatch --help` stand beside as what people are
used to. `miles --help` is measured with 0, 50 and 100 plugins among the 200, since it must not grow with them.

The last two lines are about a worker: the CPU time of one that builds a trivial component of a plugin, and how many
folders it lists until that is built. An audit hook counts `os.scandir` and `os.listdir` from the first line of its
life; what the import system lists in order to find modules is not counted.

The interpreter's own start includes what editable installations add to it, on both sides of a ratio.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

DISTRIBUTIONS = 200
PLUGINS = 50
FLATNESS = (0, 50, 100)
PROVIDED = 4  # components declared by each made-up plugin
FLAT_WITHIN = 0.10

BIN = Path(sys.executable).parent
COMMANDS = {
    "python -c pass": [sys.executable, "-c", "pass"],
    "miles --version": [str(BIN / "miles"), "--version"],
    "miles plugins list --json": [str(BIN / "miles"), "plugins", "list", "--json"],
    "miles --help": [str(BIN / "miles"), "--help"],
    "pytest --version": [str(BIN / "pytest"), "--version"],
    "hatch --help": [str(BIN / "hatch"), "--help"],
}
AIMS = {"miles --version": 3.0, "miles plugins list --json": 6.0, "miles --help": 9.0}
PASS = "python -c pass"
HELP = "miles --help"

WORKER = "worker with a trivial component"
DRIVER = """
import asyncio, sys
from miles_core.contracts.component import BuildContext, ComponentRef
from miles_core.runtime.local import LocalOptions, LocalRuntime

async def main(folder, log):
    context = BuildContext(1, "engine-0")
    runtime = LocalRuntime(LocalOptions(environment={"LISTED": log, "PYTHONPATH": folder}), context)
    factory, options = "miles_plugin_made_up_000:Trivial", "miles_core.contracts.options:NoOptions"
    location = folder + "/miles_plugin_made_up_000-1.0.0.dist-info"
    owner = ("miles-plugin-made-up-000", "1.0.0", location)
    ref = ComponentRef("engine", "trivial", factory, options, {}, *owner)
    handle = await runtime.start(ref, context)
    print(await handle.call("cpu"))
    await runtime.close()

asyncio.run(main(*sys.argv[1:]))
"""
TRIVIAL = """
import time
class Trivial:
    def __init__(self, options, context): pass
    def cpu(self): return time.process_time()
"""
AUDIT = """
import os, sys
def count(event, arguments):
    if event in ("os.scandir", "os.listdir"):
        if sys._getframe(1).f_code.co_filename != "<frozen importlib._bootstrap_external>":
            with open(os.environ["LISTED"], "a") as log:
                log.write(str(arguments[0]) + "\\n")
if "LISTED" in os.environ:
    sys.addaudithook(count)
"""


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the table. `value` is a multiple of `python -c pass`, or a count; `met` is None without an aim."""

    what: str
    value: float
    milliseconds: float | None = None
    aim: str = ""
    met: bool | None = None


def make_distributions(folder: Path, plugins: int) -> None:
    """Metadata of DISTRIBUTIONS installed distributions, as pip leaves it, the first `plugins` of them with plugins."""
    folder.mkdir()
    for number in range(DISTRIBUTIONS):
        is_plugin = number < plugins
        stem = f"miles_plugin_made_up_{number:03}" if is_plugin else f"made_up_{number:03}"
        info = folder / f"{stem}-1.{number}.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.4\nName: {stem.replace('_', '-')}\nVersion: 1.{number}.0\n"
            "Summary: Made up for measuring\nProject-URL: Homepage, https://example.org\n"
            "Requires-Dist: miles-core>=0.1,<0.2\nRequires-Dist: numpy>=1.20\n\nA longer description.\n"
        )
        (info / "RECORD").write_text(f"{info.name}/METADATA,,\n" * 50)
        (info / "INSTALLER").write_text("pip\n")
        if is_plugin:
            provides = "".join(f"reward.made-up-{number}-{k} = {stem}\n" for k in range(PROVIDED))
            entry = f"[miles.plugins]\nmade-up-{number:03} = {stem}\n\n[miles.provides]\n{provides}"
            (info / "entry_points.txt").write_text(entry)
        elif number % 3 == 0:
            (info / "entry_points.txt").write_text(f"[console_scripts]\nmade-up-{number} = {stem}:main\n")


def cpu_seconds(command: list[str], environment: dict[str, str]) -> float:
    """User + system CPU time of one run of the command. Raises when it fails."""
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(command)} ended with {process.returncode}")
    return usage.ru_utime + usage.ru_stime


def measure(cells: list[tuple[str, int]], folders: dict[int, Path], rounds: int) -> dict[tuple[str, int], float]:
    """Median CPU seconds of each (command, number of plugins), run in turn."""
    taken: dict[tuple[str, int], list[float]] = {cell: [] for cell in cells}
    for turn in range(rounds + 1):
        for name, plugins in cells:
            seconds = cpu_seconds(COMMANDS[name], {**os.environ, "PYTHONPATH": str(folders[plugins])})
            if turn:  # the first compiles to bytecode and warms the page cache
                taken[name, plugins].append(seconds)
    return {cell: statistics.median(seconds) for cell, seconds in taken.items()}


def measure_worker(folder: Path, rounds: int) -> tuple[float, int]:
    """Median CPU seconds of a worker until its component is built, and the folders that it listed."""
    (folder / "miles_plugin_made_up_000.py").write_text(TRIVIAL)
    log = folder.parent / "listed"
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    command = [sys.executable, "-c", DRIVER, str(folder), str(log)]
    taken = []
    for turn in range(rounds + 1):
        if turn == 1:  # counted in a run of its own: the hook costs time
            (folder / "sitecustomize.py").unlink()
        elif turn == 0:
            (folder / "sitecustomize.py").write_text(AUDIT)
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        if turn:
            taken.append(float(done.stdout))
    listed = [
        line for line in (log.read_text().splitlines() if log.exists() else ()) if _is_on_import_path(line, folder)
    ]
    return statistics.median(taken), len(listed)


def _is_on_import_path(line: str, folder: Path) -> bool:
    return line.startswith(str(folder)) or "site-packages" in line


def lines_of(found: dict[tuple[str, int], float], worker: tuple[float, int]) -> list[Line]:
    base = found[PASS, PLUGINS]
    lines = []
    for name in COMMANDS:
        if (name, PLUGINS) in found:
            seconds = found[name, PLUGINS]
            aim = AIMS.get(name)
            met = None if aim is None else seconds / base <= aim
            lines.append(Line(name, seconds / base, seconds * 1000, f"<= {aim:g}" if aim else "", met))
    helps = [found[HELP, plugins] for plugins in FLATNESS]
    for plugins, seconds in zip(FLATNESS, helps, strict=True):
        lines.append(Line(f"{HELP}, {plugins} plugins", seconds / base, seconds * 1000))
    spread = max(abs(seconds - helps[1]) / helps[1] for seconds in helps)
    flat = f"<= {FLAT_WITHIN:g}"
    lines.append(Line(f"{HELP}: largest change over 0, 50 and 100 plugins", spread, None, flat, spread <= FLAT_WITHIN))
    lines.append(Line(WORKER, worker[0] / base, worker[0] * 1000))
    lines.append(Line(f"{WORKER}: folders that it lists", worker[1], None, "0", worker[1] == 0))
    return lines


def say(lines: list[Line]) -> None:
    print(f"{DISTRIBUTIONS} distributions, {PLUGINS} of them plugins; CPU time, medians")
    print(f"{'':52}{'ms':>8}{'x pass':>9}{'aim':>9}")
    for line in lines:
        milliseconds = "" if line.milliseconds is None else f"{line.milliseconds:.1f}"
        verdict = {None: "", True: "  met", False: "  MISSED"}[line.met]
        print(f"{line.what:52}{milliseconds:>8}{line.value:>9.2f}{line.aim:>9}{verdict}")
    for name in COMMANDS:
        if not Path(COMMANDS[name][0]).exists():
            print(f"{name:52} not installed")


def main() -> int:
    parser = argparse.ArgumentParser(description="Start-up time of the command line, in multiples of python -c pass.")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    names = [name for name, command in COMMANDS.items() if Path(command[0]).exists()]
    cells = [(name, PLUGINS) for name in names] + [(HELP, count) for count in FLATNESS if count != PLUGINS]
    with tempfile.TemporaryDirectory() as scratch:
        folders = {count: Path(scratch, f"site-{count}") for count in FLATNESS}
        for count, folder in folders.items():
            make_distributions(folder, count)
        found = measure(cells, folders, arguments.rounds)
        worker = measure_worker(folders[PLUGINS], max(3, arguments.rounds // 3))
    lines = lines_of(found, worker)
    if arguments.json:
        print(json.dumps([asdict(line) for line in lines], indent=2))
    else:
        say(lines)
    return 1 if any(line.met is False for line in lines) else 0


if __name__ == "__main__":
    sys.exit(main())
