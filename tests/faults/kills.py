"""Kill processes of short asynchronous runs at random moments, resume, and audit.

    python tests/faults/kills.py --count 10 [--seed 1]

Each run is the toy ring in real processes. A driver, an engine or a trainer is killed with SIGKILL after a random time,
again and again until the run has ended or was killed three times; then it is resumed to its end. A line for each run
says who was killed and what the audit found. Exit code 1 when anything was lost or trained twice.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path

from miles_core.loop.audit import audit
from miles_core.observe.folder import RunFolder

RECIPE = """
miles: 1
seed: {seed}
plugins: [toy]
model: {{use: toy}}
data: {{use: file, path: tasks.jsonl}}
schedule: {{use: {use}, groups_per_step: 4, group_size: 4{options}}}
buffer: {{use: fifo, recycle: [aborted, stale]}}
generator: {{use: single-turn, sampling: {{max_new_tokens: 8}}}}
rewards: [{{use: match, mode: contains}}]
advantage: {{use: toy}}
loss: {{use: toy}}
engine: {{use: toy, replicas: 2, seconds_per_token: 0.004}}
trainer: {{use: toy}}
checkpoint: {{every: 2}}
steps: 30
"""
SCHEDULES = {
    "sync": "",
    "one-step-off": "",
    "async": ", max_staleness: 2",
}
KILLS = 3
PATIENCE = 120.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=10, help="runs")
    parser.add_argument("--seed", type=int, default=1, help="of the random moments and victims")
    arguments = parser.parse_args()
    faults = 0
    for number in range(arguments.count):
        with tempfile.TemporaryDirectory() as folder:
            faults += not one_run(Path(folder), random.Random(f"{arguments.seed}/{number}"), number)
    print(f"{arguments.count} runs, {faults} with faults")
    return 1 if faults else 0


def one_run(folder: Path, choice: random.Random, number: int) -> bool:
    """Whether the run came to its end with nothing lost and nothing trained twice."""
    use = choice.choice(["async", "async", "one-step-off", "sync"])
    rows = (json.dumps({"id": f"t{i}", "prompt": f"p{i}", "answer": chr(97 + i % 26)}) for i in range(500))
    (folder / "tasks.jsonl").write_text("\n".join(rows) + "\n")
    (folder / "kills.yaml").write_text(RECIPE.format(seed=number, use=use, options=SCHEDULES[use]))
    command = ["run", "kills.yaml"]
    victims: Counter[str] = Counter()
    for _ in range(KILLS):
        victim, rc = kill_once(folder, command, choice)
        victims[victim] += bool(victim)
        if rc == 0 or is_done(folder):  # the driver may die between its last word and its end
            rc = 0
            break
        command = ["resume", "kills"] if list(folder.glob("runs/*/checkpoints/step-*[0-9]")) else ["run", "kills.yaml"]
        if command[0] == "run":
            for half_made in folder.glob("runs/*"):
                half_made.rename(folder / f"abandoned-{half_made.name}")
    else:
        with (folder / "output.txt").open("w") as output:
            rc = subprocess.run(
                miles(command), cwd=folder, stdout=subprocess.DEVNULL, stderr=output, timeout=PATIENCE
            ).returncode
    (run,) = folder.glob("runs/*")
    result = audit(RunFolder(run))
    ok = rc == 0 and result.ok and result.state == "done"
    told = ", ".join(f"{who} x {times}" for who, times in victims.items()) or "nobody"
    print(f"{number:3} {use:12} killed {told}: {'ok' if ok else 'FAULT'}, {dict(result.phases[0].groups)}", flush=True)
    for finding in result.findings:
        print(f"    {finding.where}: {finding.what}")
    if rc:
        print(f"    exit code {rc}, the run is {result.state}: {(folder / 'output.txt').read_text()}")
    return ok


def kill_once(folder: Path, command: list[str], choice: random.Random) -> tuple[str, int]:
    """Start, kill somebody at a random moment, and wait for the end; who was killed, and the exit code."""
    since = datetime.now(UTC).isoformat(timespec="milliseconds")
    with (folder / "output.txt").open("w") as output:
        process = subprocess.Popen(miles(command), cwd=folder, stdout=subprocess.DEVNULL, stderr=output)
    wait_until_it_works(folder, process, since)
    time.sleep(choice.uniform(0.0, 1.5))
    workers = children_of(process.pid)
    place = choice.randrange(-1, len(workers))
    who, pid = ("driver", process.pid) if place < 0 else ("worker", workers[place])
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        who = ""
    return who, process.wait(PATIENCE)


def wait_until_it_works(folder: Path, process: subprocess.Popen[bytes], since: str) -> None:
    """Until the ring goes round: killing a process that starts shows little."""
    deadline = time.monotonic() + PATIENCE
    while process.poll() is None and time.monotonic() < deadline:
        for path in folder.glob("runs/*/events.jsonl"):
            for line in path.read_text().splitlines():
                if '"workers_ready"' in line and json.loads(line)["at"] > since:
                    return
        time.sleep(0.05)


def is_done(folder: Path) -> bool:
    return any(json.loads(path.read_text())["state"] == "done" for path in folder.glob("runs/*/run.json"))


def children_of(pid: int) -> list[int]:
    try:
        return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except FileNotFoundError:
        return []


def miles(command: list[str]) -> list[str]:
    return [sys.executable, "-m", "miles_core.cli.entry", *command, "--quiet"]


if __name__ == "__main__":
    sys.exit(main())
