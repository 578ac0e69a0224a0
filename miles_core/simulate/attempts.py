"""Attempts on modelled engines: what a generator would make, without a token."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from miles_core.contracts.rollout import Attempt, Draw
from miles_core.simulate.engines import ModelledFleet
from miles_core.simulate.lengths import LOST, Lengths, Work
from miles_core.simulate.light import light_sequence
from miles_core.simulate.service import Service
from miles_core.types.task import Task
from miles_core.types.trajectory import Status, Trajectory

_STRIDE = 1_000_003
"""Keeps the noise of numbered tasks and groups apart for different seeds."""


class NumberedTasks:
    """`contracts.rollout.Data` without end: each draw is a task of its own."""

    def __init__(self) -> None:
        self._drawn = 0

    def draw(self) -> Draw:
        self._drawn += 1
        return Draw(Task(f"t{self._drawn}", "simulated", metadata={"number": self._drawn}), 0)

    def held_out(self, count: int) -> list[Task]:
        return []

    def size(self) -> None:
        return None

    def state(self) -> Mapping[str, Any]:
        return {"drawn": self._drawn}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._drawn = state["drawn"]


class Attempts:
    """Makes trajectories. How long they are depends on the seed and the group's number alone, so that two schedules
    that are compared have the same work."""

    def __init__(
        self, fleet: ModelledFleet, lengths: Lengths, service: Service, group_size: int, limit: int, seed: int
    ) -> None:
        self._fleet, self._lengths, self._service = fleet, lengths, service
        self._group_size, self._limit, self._seed = group_size, limit, seed
        self._planned: dict[int, list[Work | None]] = {}
        self.open: set[str] = set()  # attempts that were started and that nobody has counted yet

    async def __call__(self, attempt: Attempt) -> Trajectory:
        self.open.add(attempt.id)
        work = self._work(attempt) if not attempt.remade else self._alone(attempt)
        pieces, aborted = await self._fleet.serve(attempt.group, work.tokens, work.prompt)
        if self._service.outside_seconds:
            await asyncio.sleep(self._service.outside_seconds)
        status = Status.ABORTED if aborted else work.status
        kept = pieces and work.status not in LOST
        return Trajectory(
            attempt.id,
            attempt.task.id,
            attempt.index,
            (light_sequence(work.prompt, pieces),) if kept else (),
            status,
            reward=None if status in LOST else work.reward,
        )

    def _work(self, attempt: Attempt) -> Work:
        """The plan for an attempt. A group's is made with its first and forgotten with its last."""
        planned = self._planned.get(attempt.group)
        if planned is None:
            noise = random.Random(self._seed * _STRIDE + attempt.group)
            drawn = self._lengths.draw(self._task(attempt), noise, self._group_size)
            planned = self._planned[attempt.group] = [self._complete(work, noise) for work in drawn]
        work, planned[attempt.index] = planned[attempt.index], None
        if not any(planned):
            del self._planned[attempt.group]
        if work is None:
            raise AssertionError(f"attempt {attempt.id} was made twice")
        return work

    def _alone(self, attempt: Attempt) -> Work:
        """The plan for an attempt that is made again, without others of its group."""
        noise = random.Random((self._seed * _STRIDE + attempt.group) * _STRIDE + attempt.index)
        return self._complete(self._lengths.draw(self._task(attempt), noise, 1)[0], noise)

    def _task(self, attempt: Attempt) -> random.Random:
        return random.Random(-(self._seed * _STRIDE + attempt.task.metadata["number"]))

    def _complete(self, work: Work, noise: random.Random) -> Work:
        """Cut at the recipe's limit, with a reward, and lost if chance will have it."""
        service, reward = self._service, work.reward
        chance, grade = noise.random(), noise.random()
        if work.status in LOST or chance < service.aborted + service.failed:
            lost = Status.ABORTED if chance < service.aborted else Status.FAILED
            return replace(
                work, tokens=min(work.tokens, self._limit), status=work.status if work.status in LOST else lost
            )
        if reward is None:
            reward = grade if service.solved is None else float(grade < service.solved)
        if work.tokens > self._limit:
            return Work(work.prompt, self._limit, reward, Status.TRUNCATED)
        return Work(work.prompt, work.tokens, reward, work.status)
