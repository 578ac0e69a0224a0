"""What scheduling costs, and what each schedule leaves idle: the real scheduler and buffer on a virtual clock.

    python benchmarks/schedule.py [--quick]

First, microseconds of computing for each trajectory, from 10^3 to 10^5 of them: attempts and training take no real
time, so what is measured is the rollout, the buffer and the event loop. Then sync, one-step-off and async side by side
on log-normal latencies (sigma 1.5, mean 1 s): which share of the time trainer and engine slots stood idle between the
first tenth of the steps and the last three (when nothing new is started any more), how many groups were thrown away as
stale, and how long the same number of batches took.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import time

from miles_core import BuildContext, PauseMode, Trajectory
from miles_core.contracts.options import ScheduleOptions
from miles_core.rollout.async_schedule import AsyncOptions, AsyncSchedule
from miles_core.rollout.one_step_off import OneStepOffOptions, OneStepOffSchedule
from miles_core.rollout.staleness import OldestToken, OldestTokenOptions
from miles_core.rollout.sync_schedule import SyncSchedule
from miles_core.simulate.attempts import NumberedTasks
from miles_core.simulate.light import light_sequence
from miles_core.simulate.virtual_time import VirtualClock, run_in_virtual_time
from miles_core.testing.practice import Practice, practise

CONTEXT = BuildContext(1, "benchmark")
SIGMA = 1.5
BATCH = {"groups_per_step": 16, "group_size": 8}


def go(schedule: object, steps: int, train_seconds: float, limit: int | None = None) -> Practice:
    """So many batches with log-normal latencies of mean 1 s."""

    async def main() -> Practice:
        current, noise = [light_sequence(0, [(4, 1)])], random.Random(1)

        async def generate(attempt) -> Trajectory:  # type: ignore[no-untyped-def]
            began = current[0]
            await asyncio.sleep(noise.lognormvariate(-(SIGMA**2) / 2, SIGMA))
            return Trajectory(attempt.id, attempt.task.id, attempt.index, (began,))

        async def train(_groups: object) -> None:
            await asyncio.sleep(train_seconds)

        async def publish(version: int, _pause: PauseMode) -> None:
            current[0] = light_sequence(0, [(4, version)])

        staleness = None if limit is None else OldestToken(OldestTokenOptions(limit=limit), CONTEXT)
        clock = VirtualClock()
        return await practise(
            schedule,
            NumberedTasks(),
            generate,
            steps=steps,
            train=train,
            publish=publish,
            clock=clock,
            staleness=staleness,
            warm=(steps // 10, steps * 7 // 10),
            keep=False,
        )

    return run_in_virtual_time(main())


def cost(trajectories: int) -> float:
    """Microseconds of a trajectory."""
    schedule = AsyncSchedule(AsyncOptions(**BATCH), CONTEXT)
    steps = trajectories // (BATCH["groups_per_step"] * BATCH["group_size"])
    began = time.process_time()
    made = go(schedule, steps, 0.0).submitted * BATCH["group_size"]
    return 1e6 * (time.process_time() - began) / made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer trajectories")
    quick = parser.parse_args().quick
    sizes = (1_000, 10_000) if quick else (1_000, 10_000, 100_000)
    print(f"{'trajectories':>12}  {'us each':>8}")
    costs = [cost(size) for size in sizes]
    for size, each in zip(sizes, costs, strict=True):
        print(f"{size:>12}  {each:>8.1f}")
    print(f"from {sizes[0]} to {sizes[-1]}: x {costs[-1] / costs[0]:.2f}\n")

    steps = 20 if quick else 100
    options = {
        "sync": (SyncSchedule(ScheduleOptions(**BATCH), CONTEXT), None),
        "one-step-off": (OneStepOffSchedule(OneStepOffOptions(**BATCH), CONTEXT), None),
        "async, by group": (AsyncSchedule(AsyncOptions(**BATCH, refill="group"), CONTEXT), None),
        "async, by sample": (AsyncSchedule(AsyncOptions(**BATCH), CONTEXT), None),
        "async, over_sampling 2": (AsyncSchedule(AsyncOptions(**BATCH, over_sampling=2.0), CONTEXT), None),
        "async, max_staleness 4": (AsyncSchedule(AsyncOptions(**BATCH, max_staleness=4), CONTEXT), 4),
    }
    for train_seconds in (0.1, 1.0, 4.0):
        print(f"training a batch takes {train_seconds:g} s; latencies are log-normal, mean 1 s, sigma {SIGMA:g}")
        print(f"{'':<24}{'seconds':>9}{'trainer idle':>14}{'engine idle':>13}{'stale':>8}")
        for name, (schedule, limit) in options.items():
            result = go(schedule, steps, train_seconds, limit)
            idle = f"{result.trainer_idle:>13.1%}{result.engine_idle:>13.1%}"
            print(f"{name:<24}{result.seconds:>9.0f} {idle}{result.stale / result.submitted:>8.1%}")
        print()


if __name__ == "__main__":
    main()
