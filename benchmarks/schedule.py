"""What scheduling costs, what each schedule leaves idle, and whether the simulator says the same as a real run.

    python benchmarks/schedule.py [--quick] [--only PART] [--record FILE]

1. Microseconds of computing for each trajectory, from 10^3 to 10^6 of them: attempts and training take no real time, so
   what is measured is the rollout, the buffer and the event loop, beside the event loop alone.
2. Schedules and staleness policies side by side in virtual time, on log-normal latencies (sigma 1.5) and on those of
   SmolLM2-135M (traces/, recorded), both with mean 1 s: which share of the time trainer and slots stood idle between a
   tenth and seven tenths of the steps, and how long a batch took there. "held back" is the share of time
   in which back-pressure let no group start: none was granted (what is made now would be too old, or the run needs no
   more), or the buffer was full. "busy when free" is the share of slots that an attempt filled in the other time: what
   back-pressure allows. By sample, a group starts when group_size slots are free: (group_size - 1) / 2 of them wait.
3. The toy recipe for real, with an engine that takes its time over each token and a trainer in processes of their own,
   against what `miles simulate --like RUN` forecasts for it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import simulate

from miles_core import BuildContext, PauseMode, Trajectory
from miles_core.contracts.options import ScheduleOptions
from miles_core.rollout.adaptive_schedule import AdaptiveOptions, AdaptiveSchedule
from miles_core.rollout.async_schedule import AsyncOptions, AsyncSchedule
from miles_core.rollout.one_step_off import OneStepOffOptions, OneStepOffSchedule
from miles_core.rollout.staleness import OldestToken, OldestTokenOptions, Resample, ResampleOptions
from miles_core.rollout.sync_schedule import SyncSchedule
from miles_core.simulate.attempts import NumberedTasks
from miles_core.simulate.light import light_sequence
from miles_core.simulate.virtual_time import VirtualClock, run_in_virtual_time
from miles_core.testing.practice import Practice, practise

CONTEXT = BuildContext(1, "benchmark")
SIGMA = 1.5
BATCH = {"groups_per_step": 32, "group_size": 8}
NEARLY_ALWAYS = 0.95
"""Held back for more than this share of the time, what is left says nothing."""
TRACE = Path(__file__).parent / "traces" / "smollm2-135m.parquet"

Latency = Callable[[random.Random], float]


def latencies() -> dict[str, Latency]:
    """Both with mean 1 s."""
    seconds = pq.read_table(TRACE, columns=["seconds"])["seconds"].to_pylist()
    mean = sum(seconds) / len(seconds)
    recorded = [each / mean for each in seconds]
    return {
        f"log-normal, sigma {SIGMA:g}": lambda noise: noise.lognormvariate(-(SIGMA**2) / 2, SIGMA),
        "SmolLM2-135M, recorded": lambda noise: recorded[noise.randrange(len(recorded))],
    }


def go(schedule: Any, steps: int, train_seconds: float, latency: Latency, staleness: Any = None) -> Practice:
    """So many batches."""

    async def main() -> Practice:
        version, noise = [1], random.Random(1)
        sequences: dict[tuple[int, int], Any] = {}

        async def generate(attempt: Any) -> Trajectory:
            began = version[0]
            await asyncio.sleep(latency(noise))
            lasted = (began, version[0])
            if lasted not in sequences:  # one half is younger where weights changed
                pieces = [(4, began), (4, version[0])] if version[0] > began else [(8, began)]
                sequences[lasted] = light_sequence(0, pieces)
            return Trajectory(attempt.id, attempt.task.id, attempt.index, (sequences[lasted],))

        async def train(_groups: object) -> None:
            await asyncio.sleep(train_seconds)

        async def publish(new: int, _pause: PauseMode) -> None:
            version[0] = new

        return await practise(
            schedule,
            NumberedTasks(),
            generate,
            steps=steps,
            train=train,
            publish=publish,
            clock=VirtualClock(),
            staleness=staleness,
            warm=(steps // 10, steps * 7 // 10),
            keep=False,
        )

    return run_in_virtual_time(main())


def cost(trajectories: int) -> float:
    """Microseconds of a trajectory."""
    schedule = AsyncSchedule(AsyncOptions(groups_per_step=16, group_size=8), CONTEXT)
    began = time.process_time()
    made = go(schedule, trajectories // 128, 0.0, lambda noise: noise.lognormvariate(-(SIGMA**2) / 2, SIGMA))
    return 1e6 * (time.process_time() - began) / (made.submitted * 8)


def bare(trajectories: int) -> float:
    """Microseconds of a trajectory that is nothing but a task which sleeps: the event loop alone."""
    noise = random.Random(1)

    async def attempt() -> None:
        await asyncio.sleep(noise.lognormvariate(-(SIGMA**2) / 2, SIGMA))

    async def slot() -> None:
        for _ in range(trajectories // 128):
            await asyncio.create_task(attempt())

    async def main() -> None:
        async with asyncio.TaskGroup() as slots:
            for _ in range(128):
                slots.create_task(slot())

    began = time.process_time()
    run_in_virtual_time(main())
    return 1e6 * (time.process_time() - began) / (trajectories // 128 * 128)


def contenders() -> dict[str, tuple[Callable[[], Any], Any]]:
    """Schedule, and staleness policy. A schedule is made anew for each run."""

    def asynchronous(**options: Any) -> Callable[[], Any]:
        return lambda: AsyncSchedule(AsyncOptions(**BATCH, **options), CONTEXT)

    def oldest(cancel: bool) -> OldestToken:
        return OldestToken(OldestTokenOptions(limit=4, cancel=cancel), CONTEXT)

    bounds = {"in_flight": (64, 768), "start": 64, "max_staleness": 4}
    return {
        "sync": (lambda: SyncSchedule(ScheduleOptions(**BATCH), CONTEXT), None),
        "one-step-off": (lambda: OneStepOffSchedule(OneStepOffOptions(**BATCH), CONTEXT), None),
        "async, by group": (asynchronous(refill="group"), None),
        "async, by sample": (asynchronous(), None),
        "async, over_sampling 2": (asynchronous(over_sampling=2.0), None),
        "  max_staleness 4": (asynchronous(over_sampling=2.0, max_staleness=4), oldest(cancel=False)),
        "  and cancelling": (asynchronous(over_sampling=2.0, max_staleness=4), oldest(cancel=True)),
        "  and resample": (
            asynchronous(over_sampling=2.0, max_staleness=4),
            Resample(ResampleOptions(limit=4), CONTEXT),
        ),
        "adaptive from 64": (lambda: AdaptiveSchedule(AdaptiveOptions(**BATCH, **bounds), CONTEXT), oldest(True)),
    }


def print_costs(quick: bool) -> dict[str, dict[str, float]]:
    sizes = (1_000, 10_000) if quick else (1_000, 10_000, 100_000, 1_000_000)
    print(f"{'trajectories':>12}  {'us each':>8}  {'event loop alone':>16}")
    costs, loop = {}, {}
    for size in sizes:
        tries = 3 if size <= 10_000 else 1  # short ones are easily disturbed
        costs[str(size)] = min(cost(size) for _ in range(tries))
        loop[str(size)] = min(bare(size) for _ in range(tries))
        print(f"{size:>12}  {costs[str(size)]:>8.1f}  {loop[str(size)]:>16.1f}", flush=True)
    print(f"from {sizes[0]} to {sizes[-1]}: x {costs[str(sizes[-1])] / costs[str(sizes[0])]:.2f}\n")
    return {"all": costs, "event_loop_alone": loop}


def print_side_by_side(quick: bool) -> list[dict[str, Any]]:
    rows = []
    steps = 20 if quick else 40
    for name, latency in latencies().items():
        for train_seconds in (0.5,) if quick else (0.5, 2.0):
            print(f"latencies: {name}, mean 1 s; training a batch of 256 takes {train_seconds:g} s")
            heads = ("s a batch", "trainer idle", "engine idle", "held back", "busy when free", "too old")
            print(f"{'':<24}" + "".join(f"{head:>16}" for head in heads))
            for who, (make, staleness) in contenders().items():
                found = go(make(), steps, train_seconds, latency, staleness)
                too_old = (found.stale + found.cancelled) / found.submitted
                free = 1 - found.engine_gap if found.held_back < NEARLY_ALWAYS else None
                shares = (found.trainer_idle, found.engine_idle, found.held_back, free, too_old)
                told = "".join("               -" if share is None else f"{share:>16.1%}" for share in shares)
                print(f"{who:<24}{found.batch_seconds:>16.2f}{told}", flush=True)
                names = ("trainer_idle", "engine_idle", "held_back", "busy_when_free", "too_old")
                named = dict(zip(names, shares, strict=True))
                rows.append(
                    {"latencies": name, "train_seconds": train_seconds, "schedule": who.strip(),
                     "seconds_a_batch": found.batch_seconds, **named}
                )  # fmt: skip
            print()
    return rows


def print_measured(quick: bool) -> list[dict[str, Any]]:
    """Real runs of the toy ring against their forecasts."""
    print(f"{'measured, forecast':<20}{'trainer idle':>14}{'':>10}{'engine idle':>13}")
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for schedule in ("sync", "one-step-off", "async"):
            made = simulate.run(schedule, 10 if quick else 20, 0.03, Path(folder))
            real, forecast = simulate.measured(made), simulate.forecast(made)
            trainer, engine = (f"{a:>13.1%}{b:>10.1%}" for a, b in zip(real, forecast, strict=True))
            print(f"{schedule:<20} {trainer}{engine}", flush=True)
            rows.append({"schedule": schedule, "measured": real, "forecast": forecast})
    furthest = max(abs(a - b) for row in rows for a, b in zip(row["measured"], row["forecast"], strict=True))
    print(f"furthest apart: {100 * furthest:.1f} points")
    return rows


PARTS: dict[str, Callable[[bool], Any]] = {
    "microseconds_per_trajectory": print_costs,
    "side_by_side": print_side_by_side,
    "measured_and_forecast": print_measured,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer trajectories")
    parser.add_argument("--only", choices=PARTS, action="append", help="this part; the others of the record stay")
    parser.add_argument("--record", type=Path, help="write what was found, as JSON")
    asked = parser.parse_args()
    found = {name: part(asked.quick) for name, part in PARTS.items() if not asked.only or name in asked.only}
    if asked.record is not None:
        before = json.loads(asked.record.read_text(encoding="utf-8")) if asked.record.exists() else {}
        asked.record.write_text(json.dumps({**before, **found}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
