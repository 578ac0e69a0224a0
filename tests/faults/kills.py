"""Kill processes of short runs at random moments, and see that nothing is lost and nothing trained twice.

    python tests/faults/kills.py --count 10 [--runtime local|ray|both] [--seed 1] [--record FILE]

Each run is the toy ring in real processes, killed with SIGKILL up to four times at random moments. After the death of
an engine or of the trainer the run must come to its end by itself; after the death of the driver it is resumed, or
begun again where no checkpoint was saved yet. Then it is audited. Runs go on until `--count` kills have hit somebody. A
line for each run says who was killed; the exit code is 1 when a run did not end well. `--record` writes the figures as
JSON.

The session server lives in the driver's process and dies with it.
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
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

from miles_core.loop.audit import audit
from miles_core.observe import jsonl
from miles_core.observe.folder import RunFolder

RECIPE = """
miles: 1
seed: {seed}
plugins: [{plugins}]
model: {{use: toy}}
data: {{use: file, path: tasks.jsonl}}
schedule: {{use: {use}, groups_per_step: 4, group_size: 4{options}}}
buffer: {{use: fifo, recycle: [aborted, stale]}}
generator: {{use: single-turn, sampling: {{max_new_tokens: 8}}}}
rewards: [{{use: match, mode: contains}}]
advantage: {{use: toy}}
loss: {{use: toy}}
engine: {{use: toy, replicas: {replicas}, seconds_per_token: 0.006}}
trainer: {{use: toy}}
runtime: {{use: {runtime}}}
checkpoint: {{every: 3}}
faults: {{restart_delay: 0.05, engine_restarts: 4, restores: 4}}
steps: {steps}
"""
SCHEDULES = {
    "sync": "",
    "one-step-off": "",
    "async": ", max_staleness: 2",
    "async ": ", max_staleness: 3, update_every: 2",
}
WHO = ("engine", "trainer", "driver")
KILLS = 4
"""In one run at most: fewer than what the recipe's `faults` let it bear."""

STEPS = 16
SPREAD = 0.5
"""A kill falls so many seconds at most after a random step of those that are left."""

PATIENCE = 240.0
"""Seconds that anything may take: a cluster starts slowly on a busy machine."""


@dataclass
class Story:
    """What was done to a run, and how it ended."""

    number: int
    runtime: str
    schedule: str
    replicas: int
    killed: Counter[str] = field(default_factory=Counter)
    resumed: int = 0
    begun_again: int = 0
    seconds: float = 0.0
    happened: Counter[str] = field(default_factory=Counter)
    groups: dict[str, int] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def line(self) -> str:
        told = ", ".join(f"{who} x {times}" for who, times in self.killed.items()) or "nobody"
        ended = "ok" if not self.faults else "FAULT"
        what = f"{self.runtime:5} {self.schedule.strip():12} {self.replicas} engine(s)"
        return f"{self.number:3} {what}, killed {told}: {ended} in {self.seconds:.0f} s, {self.groups}"


class Victim:
    """A run in a folder of its own, and the processes that it has now."""

    def __init__(self, folder: Path, story: Story) -> None:
        self.folder = folder
        self.story = story
        self.command = ["run", "kills.yaml"]

    def go(self, choice: random.Random) -> None:
        """From its beginning to its end, through up to KILLS kills."""
        left = choice.randint(2, KILLS)
        while True:
            since = datetime.now(UTC).isoformat(timespec="milliseconds")
            with (self.folder / "output.txt").open("a") as output:
                process = subprocess.Popen(
                    miles(self.command),
                    cwd=self.folder,
                    env={**os.environ, "PYTHONFAULTHANDLER": "1"},
                    stdout=subprocess.DEVNULL,
                    stderr=output,
                )
            try:
                left, driver_died = self._kill_some(process, since, left, choice)
                code = process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGABRT)  # PYTHONFAULTHANDLER: it says where it is
                process.wait(PATIENCE)
                self.story.faults.append(f"it did not end within {PATIENCE:g} s; {self._last_words()}")
                return
            if not driver_died or self._state() == "done":
                if code and not driver_died:
                    self.story.faults.append(f"exit code {code}: {self._last_words()}")
                return
            self._again()

    def _kill_some(
        self, process: subprocess.Popen[bytes], since: str, left: int, choice: random.Random
    ) -> tuple[int, bool]:
        """How many kills are left, and whether the driver was killed."""
        self._until_it_works(process, since)
        while left and process.poll() is None:
            self._until_step(process, choice.randint(min(self._done(), STEPS - 1), STEPS - 1))
            pause(process, choice.uniform(0.0, SPREAD))
            who = choice.choices(WHO, (4, 3, 3))[0]
            pids = [process.pid] if who == "driver" else self._workers(who)
            if process.poll() is not None or not pids:
                continue  # it is between two lives: another moment, another victim
            try:
                os.kill(choice.choice(pids), signal.SIGKILL)
            except ProcessLookupError:
                continue
            self.story.killed[who] += 1
            left -= 1
            if who == "driver":
                return left, True
        return left, False

    def _again(self) -> None:
        """After the driver's death: resume, or begin again when nothing is saved."""
        if list(self.folder.glob("runs/*/checkpoints/step-*[0-9]")):
            self.story.resumed += 1
            self.command = ["resume", "kills"]
            return
        self.story.begun_again += 1
        self.command = ["run", "kills.yaml"]
        for begun in self.folder.glob("runs/*"):
            begun.rename(self.folder / f"abandoned-{begun.name}")

    def _until_it_works(self, process: subprocess.Popen[bytes], since: str) -> None:
        """Until the ring goes round: killing a process that starts shows little."""
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and time.monotonic() < deadline:
            for path in self.folder.glob("runs/*/events.jsonl"):
                for line in path.read_text().splitlines():
                    if '"workers_ready"' in line and line.endswith("}") and json.loads(line)["at"] > since:
                        return
            time.sleep(0.05)

    def _until_step(self, process: subprocess.Popen[bytes], step: int) -> None:
        deadline = time.monotonic() + PATIENCE
        while process.poll() is None and self._done() < step and time.monotonic() < deadline:
            time.sleep(0.05)

    def _done(self) -> int:
        """Steps on record; a run that goes back has fewer."""
        return max((path.read_text().count("\n") - 1 for path in self.folder.glob("runs/*/metrics.jsonl")), default=0)

    def _workers(self, who: str) -> list[int]:
        """Processes that write the log of such a worker of this run: children of the driver, or actors."""
        found = []
        for process in Path("/proc").glob("[0-9]*"):
            try:
                log = (process / "fd/2").readlink()
            except OSError:
                continue  # it ended, or is not ours to look at
            if log.is_relative_to(self.folder) and log.suffix == ".log" and log.name.startswith(who):
                found.append(int(process.name))
        return sorted(found)

    def _state(self) -> str:
        """The driver may die between its last word and its end."""
        states = [json.loads(path.read_text())["state"] for path in self.folder.glob("runs/*/run.json")]
        return states[0] if states else ""

    def _last_words(self) -> str:
        return (self.folder / "output.txt").read_text()[-2000:]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--count", type=int, default=10, help="kills that hit somebody")
    parser.add_argument("--runtime", choices=("local", "ray", "both"), default="local")
    parser.add_argument("--seed", type=int, default=1, help="of the random moments and victims")
    parser.add_argument("--record", type=Path, help="a file for the figures")
    arguments = parser.parse_args()
    runtimes = ("local", "ray", "local") if arguments.runtime == "both" else (arguments.runtime,)
    stories: list[Story] = []
    while sum(story.killed.total() for story in stories) < arguments.count:
        number = len(stories)
        choice = random.Random(f"{arguments.seed}/{number}")
        stories.append(one_run(number, runtimes[number % len(runtimes)], choice))
        print(stories[-1].line(), flush=True)
        for fault in stories[-1].faults:
            print(f"    {fault}", flush=True)
        if arguments.record:
            arguments.record.write_text(json.dumps(record_of(stories, arguments.seed), indent=1) + "\n")
    bad = [story for story in stories if story.faults]
    kills = sum(story.killed.total() for story in stories)
    print(f"{kills} kills in {len(stories)} runs, {len(bad)} with faults")
    return 1 if bad else 0


def one_run(number: int, runtime: str, choice: random.Random) -> Story:
    story = Story(number, runtime, choice.choice(list(SCHEDULES)), choice.choice([1, 2, 2]))
    with tempfile.TemporaryDirectory(prefix="kills-") as name:
        folder = Path(name).resolve()
        rows = (json.dumps({"id": f"t{i}", "prompt": f"p{i}", "answer": chr(97 + i % 26)}) for i in range(500))
        (folder / "tasks.jsonl").write_text("\n".join(rows) + "\n")
        recipe = RECIPE.format(
            seed=number,
            steps=STEPS,
            plugins="toy" if runtime == "local" else "toy, ray",
            use=story.schedule.strip(),
            options=SCHEDULES[story.schedule],
            replicas=story.replicas,
            runtime=runtime if runtime == "local" else "ray, cpus_per_engine: 0.1, cpus_per_trainer: 0.1",
        )
        (folder / "kills.yaml").write_text(recipe)
        began = time.monotonic()
        Victim(folder, story).go(choice)
        story.seconds = time.monotonic() - began
        look_at(folder, story)
    return story


def look_at(folder: Path, story: Story) -> None:
    """Audit what the run left."""
    (path,) = folder.glob("runs/*")
    run = RunFolder(path)
    result = audit(run)
    if result.state != "done":
        story.faults.append(f"the run is {result.state}")
    story.faults += [f"{finding.where}: {finding.what}" for finding in result.findings]
    story.happened.update(event["event"] for event in jsonl.read(run.events))
    story.groups = dict(result.phases[0].groups)


def record_of(stories: list[Story], seed: int) -> dict[str, object]:
    """The figures, without anything of the machine but how long it took."""

    def summed(chosen: list[Story]) -> dict[str, object]:
        killed, happened, groups = Counter[str](), Counter[str](), Counter[str]()
        for story in chosen:
            killed.update(story.killed)
            happened.update(story.happened)
            groups.update(story.groups)
        return {
            "runs": len(chosen),
            "kills": {who: killed[who] for who in WHO},
            "engines_started_again": happened["engine_ready"],
            "runs_restored": happened["run_restored"],
            "runs_resumed": sum(story.resumed for story in chosen),
            "runs_begun_again": sum(story.begun_again for story in chosen),
            "groups": dict(groups),
            "seconds": round(sum(story.seconds for story in chosen), 1),
        }

    return {
        "format": 1,
        "what": "random SIGKILLs of processes of short runs; every run must end well and its audit find nothing",
        "versions": {name: version(name) for name in ("miles-core", "miles-plugin-ray")},
        "seed": seed,
        "kills": sum(story.killed.total() for story in stories),
        "ended_well": sum(not story.faults for story in stories),
        "faults": [f"run {story.number}: {fault}" for story in stories for fault in story.faults],
        "all": summed(stories),
        **{each: summed([s for s in stories if s.runtime == each]) for each in ("local", "ray")},
        "schedules": dict(Counter(story.schedule.strip() for story in stories)),
    }


def pause(process: subprocess.Popen[bytes], seconds: float) -> None:
    """Sleep, unless the run ends."""
    deadline = time.monotonic() + seconds
    while process.poll() is None and (left := deadline - time.monotonic()) > 0:
        time.sleep(min(left, 0.05))


def miles(command: list[str]) -> list[str]:
    return [sys.executable, "-m", "miles_core.cli.entry", *command, "--quiet"]


if __name__ == "__main__":
    sys.exit(main())
